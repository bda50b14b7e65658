"""Requests to the page as they come over the wire: their head and what they carry can both be mutated."""

import base64
import concurrent.futures
import functools
import json
import random
import re
import socket
import threading

import jax
import numpy as np

from experiments.fuzzing.mutations import mutate_bytes, mutate_json_value
from experiments.fuzzing.seeds import seed_picture
from experiments.page.answers import AnsweringModel, answer_load, answer_save, packed_for_answer
from experiments.page.server import HOST, Server
from protojax.encoders import Conv4, initialize
from protojax.errors import DataError
from protojax.images import image_form
from protojax.pretrained import Pretrained

TOKEN, PORT = 'token', b'PORT'  # the port is known when a request is sent
END = b'\r\n\r\n'


@functools.cache
def _model_for_requests() -> AnsweringModel:
    """A small encoder."""
    encoder = Conv4(filters=3, item_shape=(16, 16, 1), kernels=False)
    weights = Pretrained(encoder, *initialize(encoder, jax.random.key(0), encoder.item_shape), {'digest': 'abc'})
    return AnsweringModel(weights, image_form(weights), 3)


@functools.cache
def _server_for_requests() -> Server:
    """The page's server, answering in a thread."""
    drawings, alphabets = concurrent.futures.Future(), concurrent.futures.Future()
    drawings.set_result(_model_for_requests())
    alphabets.set_result({'runes': {'ur': [_drawn_request()]}})
    started = Server({'drawings': drawings}, alphabets)
    started.token = TOKEN
    threading.Thread(target=started.serve_forever, args=(0.05,), daemon=True).start()
    return started


def _drawn_request() -> bytes:
    return seed_picture(mode='L', size=(16, 16))


def sample_requests() -> list[bytes]:
    """One or two of each kind."""
    embedding = packed_for_answer(np.ones(3), '<f4')
    classes = [{'name': 'owl', 'examples': [embedding]}, {'name': 'tit', 'examples': [embedding, embedding]}]
    axes = packed_for_answer(np.eye(2, 3), '<f4')
    drawn = {'classes': classes, 'query': embedding, 'axes': axes}
    file = base64.b64decode(answer_save(_model_for_requests(), json.dumps(drawn).encode())['file'])
    loaded = {**answer_load(_model_for_requests(), file), 'query': embedding}
    sent = [('look', drawn), ('look', loaded), ('save', drawn), ('save', loaded)]
    posts = [(action, json.dumps(body).encode()) for action, body in sent]
    posts += [('embed', _drawn_request()), ('load', file), ('fill', b'runes'), ('alphabets', b''), ('encoders', b'')]
    get = b'GET /%s/ HTTP/1.1\r\nHost: 127.0.0.1:%s' % (TOKEN.encode(), PORT) + END
    return [*(_post_request(f'{TOKEN}/{action}/drawings', body) for action, body in posts), get]


def _post_request(path: str, body: bytes) -> bytes:
    head = f'POST /{path} HTTP/1.1\r\nHost: 127.0.0.1:{PORT.decode()}\r\nContent-Length: {len(body)}'
    return head.encode() + END + body


def changed_request(rng: random.Random, data: bytes) -> bytes:
    """A request that carries something else than it did, of which it says the length."""
    head, _, body = data.partition(END)
    try:
        changed = json.dumps(mutate_json_value(rng, json.loads(body))).encode()
    except ValueError:
        changed = mutate_bytes(rng, body)
    return _post_request(str(head.split()[1][1:], 'latin1'), changed)


def send_request(data: bytes, folder) -> dict | str:
    """What the server says. DataError if that is a refusal, and any other error of the server is one here."""
    with socket.create_connection((HOST, _server_for_requests().server_port), timeout=60) as connection:
        try:
            connection.sendall(data.replace(PORT, str(_server_for_requests().server_port).encode()))
            connection.shutdown(socket.SHUT_WR)
            said = b''.join(iter(lambda: connection.recv(1 << 16), b''))
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise
            raise DataError('the request is not read to its end') from error
    head, _, body = said.partition(END)  # perhaps with further answers, where the length of the request was wrong
    body = body[: int(re.search(rb'Content-Length: (\d+)', head)[1])] if head else b''
    status = head.split()[1:2]
    if not status or status[0][:1] == b'4' or status[0] in (b'501', b'505'):  # nothing, or a method or version
        raise DataError(str(head[:100], 'latin1').partition('\r')[0] or 'nothing')
    assert status == [b'200'], said[:300]
    return json.loads(body) if b'application/json' in head else str(body, 'utf-8')
