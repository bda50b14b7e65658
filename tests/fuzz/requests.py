"""Requests to the server of the browser demo, as they come over the wire."""

import base64
import functools
import http.client
import json
import pathlib
import random
import socket
import threading

import jax
import numpy as np

from experiments.page import answers
from experiments.page.server import HOST, Server
from protojax import encoders
from protojax.encoders import Conv4
from protojax.errors import DataError
from protojax.images import image_form
from protojax.pretrained import Pretrained
from tests.experiments.page.client import done
from tests.fuzz import mutations, seeds

TOKEN, PORT = 'token', b'PORT'  # the port is known when a request is sent
END = b'\r\n\r\n'
DRAWING = seeds.picture(mode='L', size=16)


@functools.cache
def model() -> answers.Model:
    encoder = Conv4(filters=3, item_shape=(16, 16, 1), kernels=False)
    weights = Pretrained(encoder, *encoders.init(encoder, jax.random.key(0), encoder.item_shape), {'digest': 'abc'})
    return answers.Model(weights, image_form(weights), 3)


@functools.cache
def server() -> Server:
    """Start the server in a thread."""
    started = Server({'drawings': done(model())}, done({'runes': {'ur': [DRAWING]}}))
    started.token = TOKEN
    threading.Thread(target=started.serve_forever, args=(0.05,), daemon=True).start()
    return started


def examples() -> list[bytes]:
    """One or two requests of each kind."""
    embedding = answers.packed(np.ones(3), '<f4')
    classes = [{'name': 'owl', 'examples': [embedding]}, {'name': 'tit', 'examples': [embedding, embedding]}]
    axes = answers.packed(np.eye(2, 3), '<f4')
    drawn = {'classes': classes, 'query': embedding, 'queries': [embedding], 'axes': axes}
    file = base64.b64decode(answers.save(model(), json.dumps(drawn).encode())['file'])
    loaded = {**answers.load(model(), file), 'query': embedding}
    posts = [(action, json.dumps(body).encode()) for action in ('look', 'save') for body in (drawn, loaded)]
    posts += [('embed', DRAWING), ('load', file), ('fill', b'runes'), ('alphabets', b''), ('encoders', b'')]
    get = b'GET /%s/ HTTP/1.1\r\nHost: 127.0.0.1:%s' % (TOKEN.encode(), PORT) + END
    return [*(post(f'{TOKEN}/{action}/drawings', body) for action, body in posts), get]


def post(path: str, body: bytes) -> bytes:
    head = f'POST /{path} HTTP/1.1\r\nHost: 127.0.0.1:{PORT.decode()}\r\nContent-Length: {len(body)}'
    return head.encode() + END + body


def other_body(rng: random.Random, data: bytes) -> bytes:
    """Change the body of a request, with a correct length."""
    head, _, body = data.partition(END)
    return post(str(head.split()[1][1:], 'latin1'), mutations.json_lines(rng, body))


def send(folder: pathlib.Path) -> dict | str:
    """Return the answer to a request; DataError if the server rejects it."""
    data = (folder / 'request').read_bytes().replace(PORT, str(server().server_port).encode())
    with socket.create_connection((HOST, server().server_port), timeout=60) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise DataError('the request is not read to its end, or has no answer') from error
    if 400 <= answer.status < 500 or answer.status in (501, 505):
        raise DataError(f'rejected with status {answer.status}')
    assert answer.status == 200, body[:300]
    return json.loads(body) if answer.headers['Content-Type'] == 'application/json' else str(body, 'utf-8')
