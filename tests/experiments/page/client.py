"""A client of the page's server."""

import base64
import concurrent.futures
import contextlib
import http.client
import json
import threading

import numpy as np

from experiments.page import alphabets
from experiments.page.server import Server


def done(value):
    future = concurrent.futures.Future()
    future.set_result(value)
    return future


@contextlib.contextmanager
def served(models, alphabets):
    """A server that answers in a thread."""
    server = Server(models, done(alphabets))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def request(server, method, path, body=None, **headers):
    """Status, headers and body of the response."""
    connection = http.client.HTTPConnection('127.0.0.1', server.server_port, timeout=60)
    with contextlib.closing(connection):
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


def post(server, action, body, expected=200):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    status, _, content = request(server, 'POST', f'/{server.token}/{action}/drawings', body)
    assert status == expected, content
    return json.loads(content)


def rune(name, seed):
    """A drawing of a rune that is not among those that the page offers."""
    return alphabets.png(
        alphabets.drawn(alphabets.handwritten(np.random.default_rng((7, seed)), alphabets.RUNES[name])[0])
    )


def numbers(code):
    return np.frombuffer(base64.b64decode(code), '<f4')
