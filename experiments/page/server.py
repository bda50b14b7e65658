"""The server behind the page: Python's own, for this machine alone.

It listens on 127.0.0.1. Whoever asks must know the token in the address, so other users of the machine and other pages
in the browser get nothing; a name that was made to point here by a foreign DNS server is refused by its Host header.
Requests are limited in size and answered one at a time. Few connections are served at once, and none for long without
a request of somebody who knows the token.
"""

import base64
import contextlib
import functools
import hashlib
import hmac
import http.server
import json
import pathlib
import re
import secrets
import sys
import tempfile
import threading
import traceback

from experiments.page.answers import answer_embed, answer_fill, answer_load, answer_look, answer_save
from experiments.page.incoming import LARGEST_HEAD, Incoming
from protojax.errors import first_line

HOST = '127.0.0.1'
LARGEST_REQUEST = 1 << 25  # bytes: a photograph, or a thousand classes with their examples
PATIENCE = 60  # seconds for a body, for an answer to be taken, and between two requests
MOST_CONNECTIONS = 64  # at once; a browser has six
HTML = pathlib.Path(__file__).with_name('page.html')
ACTIONS = {'embed': answer_embed, 'look': answer_look, 'save': answer_save, 'load': answer_load}


class ServedLater:
    """Like a Future of a function's value, but the function is called when the value is first asked for."""

    def __init__(self, function):
        self._function, self._turn = functools.cache(function), threading.Lock()

    def result(self):
        with self._turn:
            return self._function()


class Server(http.server.ThreadingHTTPServer):
    """The page, the encoders behind it and the alphabets to fill it with.

    models: name -> Future of an AnsweringModel, or ServedLater; alphabets: Future of a dictionary of alphabets.
    """

    daemon_threads = True

    def __init__(self, models, alphabets, port=0):
        self.models, self.alphabets = models, alphabets
        self.token = secrets.token_urlsafe(16)
        self.page = HTML.read_bytes()
        self.policy = _security_policy(self.page.decode())
        self.turn = threading.Lock()
        self.free = threading.Semaphore(MOST_CONNECTIONS)
        super().__init__((HOST, port), Handler)

    @property
    def address(self):
        return f'http://{HOST}:{self.server_port}/{self.token}/'

    def answer(self, action, name, body):
        """The answer to a request, as what becomes JSON."""
        if action == 'alphabets':
            return {'alphabets': list(self.alphabets.result())}
        if action == 'encoders':
            return {'encoders': list(self.models)}
        model = self.models[name].result()
        if action == 'ready':
            return {}
        with self.turn:  # large images do not fill the memory at the same time
            if action == 'fill':
                return answer_fill(model, self.alphabets.result()[body.decode()])
            return ACTIONS[action](model, body)

    def verify_request(self, request, client_address):
        """Whether a connection is served; if not, it is closed."""
        return self.free.acquire(blocking=False)

    def finish_request(self, request, client_address):
        try:
            super().finish_request(request, client_address)
        finally:
            self.free.release()

    def handle_error(self, request, client_address):
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):  # a tab was closed
            super().handle_error(request, client_address)


class Handler(http.server.BaseHTTPRequestHandler):
    """Checks a request and sends the answer."""

    protocol_version = 'HTTP/1.1'  # keeps connections, which saves time
    server_version, sys_version = 'protojax', ''
    wbufsize = -1  # head and body in one packet
    disable_nagle_algorithm = True

    def setup(self):
        super().setup()
        self.rfile.close()
        self.rfile = Incoming(self.connection)

    def handle_one_request(self):
        super().handle_one_request()
        if not self.close_connection:  # only after an answer to our own page, which may rest until the next request
            self.rfile.allow(PATIENCE)
            self.rfile.peek(1)
            self.rfile.expect_head()

    def parse_request(self):
        if not super().parse_request():
            return False
        if not self.rfile.left:
            self.refuse(431, f'the head of the request is longer than {LARGEST_HEAD} bytes')
            return False
        self.rfile.allow(PATIENCE)
        return True

    def do_GET(self):
        if self.trusted() and self.path == f'/{self.server.token}/':
            self.send(200, 'text/html; charset=utf-8', self.server.page)
        else:
            self.refuse(404, 'there is nothing here; the address is in the terminal')

    def do_POST(self):
        path = re.fullmatch(r'/[^/]*/(\w+)/(\w+)', self.path)
        length = self.headers.get('Content-Length', '')
        if not self.trusted() or not path:
            return self.refuse(404, 'there is nothing here; the address is in the terminal')
        if not re.fullmatch(r'[0-9]{1,12}', length):
            return self.refuse(411, 'the request does not say how long it is')
        if int(length) > LARGEST_REQUEST:
            return self.refuse(413, f'that is larger than {LARGEST_REQUEST >> 20} MB; shrink it first')
        body = self.rfile.read(int(length))
        if len(body) != int(length):
            return self.refuse(400, 'the request ended early')
        try:
            found = json.dumps(self.server.answer(*path.groups(), body), allow_nan=False)
        except ValueError as error:  # our own errors are such
            self.refuse(400, first_line(error))
        except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            self.refuse(400, f'the request is not understood ({type(error).__name__})')
        except Exception as error:
            traceback.print_exc()
            self.refuse(500, f'the server failed ({first_line(error)}); the terminal has more')
        else:
            self.send(200, 'application/json', found.encode())

    def trusted(self):
        """Whether the request is from our own page on this machine."""
        hosts = [f'{name}:{self.server.server_port}' for name in (HOST, 'localhost')]
        origin = self.headers.get('Origin')
        token = self.path.split('/')[1] if self.path.count('/') > 1 else ''
        return (
            self.headers.get('Host') in hosts
            and origin in (None, f'http://{self.headers["Host"]}')
            and hmac.compare_digest(token.encode(), self.server.token.encode())
        )

    def send_error(self, code, message=None, explain=None):
        """What Python's own server says of requests that are none, in our form."""
        self.refuse(int(code), message or 'this is no request')

    def refuse(self, code, reason):
        self.close_connection = True  # what remains of the request is not read
        self.send(code, 'application/json', json.dumps({'error': reason}).encode())

    def send(self, code, kind, content):
        self.connection.settimeout(PATIENCE)
        self.request_version = self.protocol_version  # with a head also where the request says no version
        self.send_response(code)
        self.send_header('Content-Type', kind)
        self.send_header('Content-Length', str(len(content)))
        self.send_header('Content-Security-Policy', self.server.policy)
        self.send_header('Cache-Control', 'no-store')
        self.send_header('Cross-Origin-Resource-Policy', 'same-origin')
        self.send_header('Referrer-Policy', 'no-referrer')
        self.send_header('X-Content-Type-Options', 'nosniff')
        if self.close_connection:
            self.send_header('Connection', 'close')
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@functools.cache
def _security_policy(page):
    """A Content-Security-Policy that allows this page's script and style, pictures that it makes, and our answers."""
    allowed = []
    for element in ('script', 'style'):
        (content,) = re.findall(f'<{element}>(.*?)</{element}>', page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        allowed.append(f"{element}-src 'sha256-{digest}'")
    rest = "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    return '; '.join(["default-src 'none'", *allowed, rest])


@contextlib.contextmanager
def file_leading_to_server(address):
    """The address of a file that leads to another address and that nobody else can read.

    Every user of the machine can read the arguments of the browser, so the token must not be among them.
    """
    with tempfile.NamedTemporaryFile('w', suffix='.html') as file:  # which has mode 0600
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={address}">')
        file.flush()
        yield pathlib.Path(file.name).as_uri()
