"""Programs that begin when all imports are done, each in a process of its own.

The imports of a run take longer than a small run itself. Here one process has done them and forks for each program.
"""

import contextlib
import gc
import itertools
import json
import os
import pathlib
import runpy
import signal
import subprocess
import sys
import time


class Forks:
    """The process that has imported all, and where the output of programs goes."""

    def __init__(self, folder):
        self.folder, self.numbers = folder, itertools.count()
        pipes = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE}
        self.process = subprocess.Popen([sys.executable, __file__], **pipes, text=True)

    def start(self, *arguments, **environment):
        """What `python ARGUMENTS` would start with these variables of the environment -> its process."""
        place = self.folder / str(next(self.numbers))
        place.mkdir()
        print(json.dumps([str(place), arguments, environment]), file=self.process.stdin, flush=True)
        return ForkedProgram(place, int(self.process.stdout.readline()))

    def end(self):
        """Wait for all programs."""
        self.process.stdin.close()
        self.process.wait()


class ForkedProgram:
    """A program that runs, or has run."""

    def __init__(self, place, number):
        self.place, self.number = place, number

    @property
    def returncode(self):
        """None while it runs."""
        file = self.place / 'code'
        return int(file.read_text()) if file.exists() else None

    @property
    def output(self):
        return (self.place / 'output').read_text()

    def wait(self, seconds):
        """Its exit code; TimeoutError if it takes longer."""
        self._wait_until(lambda: self.returncode is not None, seconds)
        return self.returncode

    def wait_until_halted(self, seconds):
        """Until it has stopped itself like a program that is put to sleep."""
        state = pathlib.Path(f'/proc/{self.number}/stat')
        self._wait_until(lambda: state.exists() and state.read_text().rpartition(') ')[2].startswith('T'), seconds)

    def _wait_until(self, condition, seconds):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(self.output)
            time.sleep(0.02)

    def kill(self):
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(self.number, signal.SIGKILL)


def serve():
    """Fork for each program that comes in, and once more for a process that waits for its end."""
    import tiny  # noqa: F401  (and with it whatever a run needs)

    gc.freeze()  # a program that looked through all this when it ends would copy it

    for line in sys.stdin:
        place, arguments, environment = json.loads(line)
        if not os.fork():
            program = os.fork()
            if not program:
                return become(pathlib.Path(place), arguments, environment)
            print(program, flush=True)
            code = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
            file = pathlib.Path(place, 'code')
            file.with_suffix('.part').write_text(str(code))
            file.with_suffix('.part').rename(file)
            os._exit(0)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def become(place, arguments, environment):
    """Run a program as Python would."""
    os.environ.update(environment)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    output = os.open(place / 'output', os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(output, stream)
    if arguments[0] == '-c':
        sys.argv = ['-c', *arguments[2:]]
        exec(arguments[1], {'__name__': '__main__'})
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name='__main__')


if __name__ == '__main__':
    serve()
