"""Programs that start after all imports are done: a server of forks has imported them once, for every program.

Importing takes longer than a small run.
"""

import atexit
import gc
import multiprocessing
import os
import pathlib
import runpy
import sys
import tempfile
import time

SERVER = multiprocessing.get_context('forkserver')
SERVER.set_forkserver_preload(['tests.helpers.tiny'])


class Program:
    """`python -m MODULE ARGUMENTS` or `python FILE.py ARGUMENTS` in a forked process, with these variables."""

    def __init__(self, module: str, *arguments: str, **environment: str):
        self.log = pathlib.Path(tempfile.mkdtemp(), 'output')
        self.process = SERVER.Process(target=_become, args=(module, arguments, environment, self.log), daemon=True)
        self.process.start()

    @property
    def output(self) -> str:
        return self.log.read_text() if self.log.exists() else ''

    def wait(self, seconds: float = 900) -> int:
        """Return the exit code, -N after signal N; TimeoutError if the program runs longer."""
        self.process.join(seconds)
        if self.process.exitcode is None:
            self.process.kill()
            raise TimeoutError(self.output)
        return self.process.exitcode

    def wait_until_halted(self, seconds: float = 900) -> None:
        """Wait until the program has stopped itself by SIGSTOP."""
        state, end = pathlib.Path(f'/proc/{self.process.pid}/stat'), time.monotonic() + seconds
        while not (state.exists() and state.read_text().rpartition(') ')[2].startswith('T')):
            if time.monotonic() > end:
                raise TimeoutError(self.output)
            time.sleep(0.02)


def _become(module: str, arguments: tuple, environment: dict, log: pathlib.Path) -> None:
    gc.freeze()
    os.environ.update(environment)
    output = os.open(log, os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(output, stream)
    sys.argv = ['', *arguments]
    try:
        if module.endswith('.py'):
            runpy.run_path(module, run_name='__main__')
        else:
            runpy.run_module(module, run_name='__main__', alter_sys=True)
    finally:
        atexit._run_exitfuncs()  # multiprocessing does not call them
