"""What a connection brings, within limits of time and size: whoever connects need not know the token yet."""

import io
import time

HEAD_PATIENCE = 5  # seconds for the head of a request in all
LARGEST_HEAD = 1 << 14  # bytes
BUFFER = 1 << 16


class _TimedIncoming(io.RawIOBase):
    """The bytes of a socket until a deadline, after which there is a TimeoutError, however steadily they come."""

    def __init__(self, connection):
        self.connection, self.deadline = connection, 0.0

    def readable(self):
        return True

    def readinto(self, buffer):
        self.connection.settimeout(max(self.deadline - time.monotonic(), 0.001))  # 0 would mean not to wait at all
        return self.connection.recv_into(buffer)


class Incoming(io.BufferedReader):
    """Requests as Python's own server reads them: the head by lines, which are cut at LARGEST_HEAD bytes, the body."""

    def __init__(self, connection):
        super().__init__(_TimedIncoming(connection), BUFFER)
        self.expect_head()

    def allow(self, seconds):
        self.raw.deadline = time.monotonic() + seconds

    def expect_head(self):
        self.left = LARGEST_HEAD
        self.allow(HEAD_PATIENCE)

    def readline(self, size):
        line = super().readline(min(size, self.left))
        self.left -= len(line)
        return line
