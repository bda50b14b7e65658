"""Run the tests of the C++ kernels under AddressSanitizer and UndefinedBehaviorSanitizer.

    python tests/sanitize_kernels.py [arguments of pytest]

The kernels are compiled with both, for this run only. A read or write outside of an array, a use of freed memory or
undefined arithmetic ends the run at once and prints the line of the source. Needs g++ or clang++ with its sanitizers.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

REPOSITORY = pathlib.Path(__file__).parents[1]
TESTS = tuple(f'tests/protojax/encoders/test_{name}.py' for name in ('cpu_kernels', 'memory', 'photos'))
FLAGS = '-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g'


def main(arguments):
    compiler = os.environ.get('CXX', 'g++')
    commands = ([compiler, f'-print-file-name=lib{name}.so'] for name in ('asan', 'stdc++'))
    libraries = [subprocess.check_output(command, text=True).strip() for command in commands]
    with tempfile.TemporaryDirectory() as cache:
        environment = {
            **os.environ,
            'CXX': f'env LD_PRELOAD= {compiler} {FLAGS}',  # the compiler itself is not checked
            'XDG_CACHE_HOME': cache,  # separate from the libraries of other runs
            # Python is not compiled with them, so they are preloaded; libstdc++ is for exceptions of JAX.
            'LD_PRELOAD': ' '.join(libraries),
            'ASAN_OPTIONS': 'detect_leaks=0',  # Python does not free all objects when it exits
            'UBSAN_OPTIONS': 'print_stacktrace=1',
        }
        options = ['-n', '0', '-q', '-s', '-p', 'no:cacheprovider']  # -s, because the sanitizers print to stderr
        command = [sys.executable, '-m', 'pytest', *options, *TESTS, *arguments]
        return subprocess.run(command, env=environment, cwd=REPOSITORY, check=False).returncode


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
