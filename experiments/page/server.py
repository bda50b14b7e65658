"""The server behind the page: Python's own, for this machine alone.

It listens on 127.0.0.1. Whoever asks must know the token in the address, so other users of the machine and other pages
in the browser get nothing; a name that was made to point here by a foreign DNS server is refused by its Host header.
Requests are limited in size and answered one at a time.
"""

import base64
import functools
import hashlib
import hmac
import http.server
import json
import pathlib
import re
import secrets
import sys
import threading
import traceback

from experiments.page import answers
from protojax.errors import first_line

HOST = '127.0.0.1'
LARGEST_REQUEST = 1 << 25  # bytes: a photograph, or a thousand classes with their examples
PATIENCE = 60  # seconds for a browser that says nothing
HTML = pathlib.Path(__file__).with_name('page.html')
ACTIONS = {'embed': answers.embed, 'look': answers.look, 'save': answers.save, 'load': answers.load}


class Server(http.server.ThreadingHTTPServer):
    """The page, the encoders behind it and the alphabets to fill it with.

    models: name -> Future of a Model; alphabets: Future of a dictionary of alphabets.
    """

    daemon_threads = True

    def __init__(self, models, alphabets, port=0):
        self.models, self.alphabets = models, alphabets
        self.token = secrets.token_urlsafe(16)
        self.page = HTML.read_bytes()
        self.policy = security_policy(self.page.decode())
        self.turn = threading.Lock()
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
        with self.turn:  # large images do not fill the memory at the same time
            if action == 'fill':
                return answers.fill(model, self.alphabets.result()[body.decode()])
            return ACTIONS[action](model, body)

    def handle_error(self, request, client_address):
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):  # a tab was closed
            super().handle_error(request, client_address)


class Handler(http.server.BaseHTTPRequestHandler):
    """Checks a request and sends the answer."""

    protocol_version = 'HTTP/1.1'  # keeps connections, which saves time
    server_version, sys_version = 'protojax', ''
    timeout = PATIENCE
    wbufsize = -1  # head and body in one packet
    disable_nagle_algorithm = True

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

    def refuse(self, code, reason):
        self.close_connection = True  # what remains of the request is not read
        self.send(code, 'application/json', json.dumps({'error': reason}).encode())

    def send(self, code, kind, content):
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
def security_policy(page):
    """A Content-Security-Policy that allows this page's script and style, pictures that it makes, and our answers."""
    allowed = []
    for element in ('script', 'style'):
        (content,) = re.findall(f'<{element}>(.*?)</{element}>', page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        allowed.append(f"{element}-src 'sha256-{digest}'")
    rest = "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    return '; '.join(["default-src 'none'", *allowed, rest])
