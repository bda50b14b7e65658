"""HTTP server of the page, for this machine only.

It listens on 127.0.0.1. Requests must contain the random token of the address, so other users of the machine and other
pages in the browser get no answer; the Host header is checked against DNS rebinding. Connections are limited in number,
and requests in size and time; they are answered one at a time.
"""

import base64
import contextlib
import functools
import hashlib
import http.server
import json
import pathlib
import re
import secrets
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from experiments.page import answers
from protojax.errors import first_line

HOST = '127.0.0.1'
LARGEST_REQUEST = 1 << 25  # bytes: a photograph, or a thousand classes with their examples
HTML = pathlib.Path(__file__).with_name('page.html')
CONNECTIONS = 64  # at a time
ACTIONS = (answers.embed, answers.look, answers.save, answers.load, answers.export_model)
HEADERS = {
    'Cache-Control': 'no-store',
    'Cross-Origin-Resource-Policy': 'same-origin',
    'Referrer-Policy': 'no-referrer',
    'X-Content-Type-Options': 'nosniff',
}
MISSING = 'not found; the address of the page is in the terminal'


class Lazy:
    """Like a Future, but the function is called when its result is first requested."""

    def __init__(self, function: Callable[[], Any]):
        self._function, self._lock = functools.cache(function), threading.Lock()

    def result(self) -> Any:
        with self._lock:
            return self._function()


class Server(http.server.ThreadingHTTPServer):
    """Serves the page.

    Args:
        models: {name: Future or Lazy of a Model}.
        alphabets: Future or Lazy of {name: alphabet}.
    """

    daemon_threads = True

    def __init__(self, models: Mapping[str, Any], alphabets: Any, port: int = 0):
        self.models, self.alphabets = models, alphabets
        self.token = secrets.token_urlsafe(16)
        self.page = HTML.read_bytes()
        self.policy = _security_policy(self.page.decode())
        self.lock, self.slots = threading.Lock(), threading.Semaphore(CONNECTIONS)
        super().__init__((HOST, port), Handler)

    @property
    def address(self) -> str:
        return f'http://{HOST}:{self.server_port}/{self.token}/'

    def answer(self, action: str, name: str, body: bytes) -> dict:
        """Return the answer to a request, to be sent as JSON."""
        if action == 'alphabets':
            return {'alphabets': list(self.alphabets.result())}
        if action == 'encoders':
            return {'encoders': list(self.models)}
        model = self.models[name].result()
        if action == 'ready':
            return {}
        with self.lock:  # one large image in memory at a time
            if action == 'fill':
                return answers.fill(model, self.alphabets.result()[body.decode()])
            return {function.__name__: function for function in ACTIONS}[action](model, body)

    def process_request(self, request, client_address):
        if self.slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request, client_address):
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.slots.release()

    def handle_error(self, request, client_address):
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):  # a tab was closed
            super().handle_error(request, client_address)


class Handler(http.server.BaseHTTPRequestHandler):
    """Checks a request and sends the answer."""

    timeout = 60  # seconds for each read and write
    protocol_version = 'HTTP/1.1'  # keeps connections open
    server_version, sys_version = 'protojax', ''
    wbufsize = -1  # head and body in one packet
    disable_nagle_algorithm = True

    def do_GET(self):
        if self.trusted() and self.path == f'/{self.server.token}/':
            self.send(200, 'text/html; charset=utf-8', self.server.page)
        else:
            self.reject(404, MISSING)

    def do_POST(self):
        path = re.fullmatch(r'/[^/]*/(\w+)/(\w+)', self.path)
        length = self.headers.get('Content-Length', '')
        if not self.trusted() or not path:
            return self.reject(404, MISSING)
        if not re.fullmatch(r'[0-9]{1,12}', length):
            return self.reject(411, 'Content-Length is missing')
        if int(length) > LARGEST_REQUEST:
            return self.reject(413, f'the request exceeds {LARGEST_REQUEST >> 20} MB; shrink the image first')
        body = self.rfile.read(int(length))
        try:
            found = json.dumps(self.server.answer(*path.groups(), body), allow_nan=False)
        except ValueError as error:  # includes DataError and WeightsError
            self.reject(400, first_line(error))
        except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            self.reject(400, f'invalid request ({type(error).__name__})')
        except Exception as error:
            traceback.print_exc()
            self.reject(500, f'the server failed ({first_line(error)}); see the terminal')
        else:
            self.send(200, 'application/json', found.encode())

    def trusted(self):
        """Return whether the request comes from the page itself."""
        hosts = [f'{name}:{self.server.server_port}' for name in (HOST, 'localhost')]
        origin = self.headers.get('Origin')
        token = self.path.split('/')[1] if self.path.count('/') > 1 else ''
        return (
            self.headers.get('Host') in hosts
            and origin in (None, f'http://{self.headers["Host"]}')
            and secrets.compare_digest(token.encode(), self.server.token.encode())
        )

    def send_error(self, code, message=None, explain=None):
        """Report errors of http.server in the same form."""
        self.reject(int(code), message or 'invalid request')

    def reject(self, code, reason):
        self.close_connection = True  # the rest of the request is not read
        self.send(code, 'application/json', json.dumps({'error': reason}).encode())

    def send(self, code, kind, content):
        self.request_version = self.protocol_version  # send headers even if the request has no version
        self.send_response(code)
        self.send_header('Content-Type', kind)
        self.send_header('Content-Length', str(len(content)))
        self.send_header('Content-Security-Policy', self.server.policy)
        for header in HEADERS.items():
            self.send_header(*header)
        if self.close_connection:
            self.send_header('Connection', 'close')
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


def _security_policy(page):
    """Return a Content-Security-Policy for the page's script and style, data URLs, and requests to this server."""
    allowed = []
    for element in ('script', 'style'):
        (content,) = re.findall(f'<{element}>(.*?)</{element}>', page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        allowed.append(f"{element}-src 'sha256-{digest}'")
    rest = "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    return '; '.join(["default-src 'none'", *allowed, rest])


@contextlib.contextmanager
def redirect(address: str) -> Iterator[str]:
    """Yield the URL of a private file that redirects to an address.

    Every user of the machine can read the browser's command line, so it must not contain the token.
    """
    with tempfile.NamedTemporaryFile('w', suffix='.html') as file:  # mode 0600
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={address}">')
        file.flush()
        yield pathlib.Path(file.name).as_uri()
