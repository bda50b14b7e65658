"""Runs the tests of the C++ kernels under AddressSanitizer and UndefinedBehaviorSanitizer.

    python tests/sanitize_kernels.py [arguments of pytest]

The kernels are compiled with both, for this run alone. A read or write outside of an array, a use of freed memory or
undefined arithmetic ends the run at once, with its place in the source. Needs g++ or clang++ with its sanitizers.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

REPOSITORY = pathlib.Path(__file__).parents[1]
TESTS = ('tests/protojax/encoders/test_cpu_kernels.py', 'tests/protojax/encoders/test_memory.py')
FLAGS = '-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g'


def library(compiler, name):
    """Where the compiler has a library."""
    return subprocess.run(
        [compiler, f'-print-file-name={name}'], capture_output=True, text=True, check=True
    ).stdout.strip()


def main(arguments):
    compiler = os.environ.get('CXX', 'g++')
    with tempfile.TemporaryDirectory() as cache:
        environment = {
            **os.environ,
            'CXX': f'env LD_PRELOAD= {compiler} {FLAGS}',  # the compiler itself need not be watched
            'XDG_CACHE_HOME': cache,  # no library of another run, and none for another
            # Python itself is not compiled with them, so they must be there before it; libstdc++ for exceptions of JAX.
            'LD_PRELOAD': f'{library(compiler, "libasan.so")} {library(compiler, "libstdc++.so")}',
            'ASAN_OPTIONS': 'detect_leaks=0',  # Python leaves objects at its end
            'UBSAN_OPTIONS': 'print_stacktrace=1',
        }
        tests = [str(REPOSITORY / test) for test in TESTS if (REPOSITORY / test).exists()]
        options = ['-n', '0', '-q', '-s', '-p', 'no:cacheprovider']  # -s, as what ends the run is told on stderr
        command = [sys.executable, '-m', 'pytest', *options, *tests, *arguments]
        return subprocess.run(command, env=environment, cwd=REPOSITORY, check=False).returncode


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
