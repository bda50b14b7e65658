"""The server answers only its own page, and limits requests."""

import pathlib
import re
import socket
import threading
import urllib.parse

import pytest

from experiments.page.server import HTML, LARGEST_REQUEST, redirect
from tests.experiments.page import client
from tests.experiments.page.client import request


@pytest.fixture(scope='module')
def server():
    """Without an encoder."""
    with client.served({}, {}) as server:
        yield server


def test_page_is_local_and_self_contained(server):
    assert server.server_address[0] == '127.0.0.1'
    status, headers, content = request(server, 'GET', f'/{server.token}/')
    assert status == 200 and content == HTML.read_bytes()
    assert headers['Cache-Control'] == 'no-store' and headers['X-Content-Type-Options'] == 'nosniff'
    assert headers['Referrer-Policy'] == 'no-referrer' and 'Python' not in headers['Server']
    policy = headers['Content-Security-Policy']
    assert "default-src 'none'" in policy and 'unsafe' not in policy and policy.count("'sha256-") == 2
    assert set(re.findall(rb'https?://[^\s\'"]+', content)) == {b'http://www.w3.org/2000/svg'}  # a namespace


@pytest.mark.parametrize(
    ('path', 'headers'),
    [
        ('/', {}),
        ('/wrong/', {}),
        ('/{token}', {}),
        ('/{token}/', {'Host': 'evil.example:{port}'}),
        ('/{token}/', {'Host': '127.0.0.1'}),
        ('/{token}/', {'Origin': 'http://evil.example'}),
        ('/{token}/../../etc/passwd', {}),
        ('/wrong/encoders/drawings', {}),
        ('/{token}/encoders/drawings', {'Origin': 'null'}),
    ],
)
def test_others_get_nothing(server, path, headers):
    known = {'token': server.token, 'port': server.server_port}
    headers = {name: value.format(**known) for name, value in headers.items()}
    for method in ('GET', 'POST'):
        status, _, content = request(server, method, path.format(**known), b'' if method == 'POST' else None, **headers)
        assert status == 404 and b'error' in content


@pytest.mark.parametrize('line', [b'x', b'<script> / HTTP/1.1', b'GET / HTTP/9', b'x ' * 999])
def test_malformed_requests_get_a_safe_response(server, line):
    with socket.create_connection(('127.0.0.1', server.server_port), timeout=60) as connection:
        connection.sendall(line + b'\r\n\r\n')
        connection.shutdown(socket.SHUT_WR)
        response = connection.recv(1 << 16)
    assert re.match(rb'HTTP/1.1 (4|50)', response) and b'Content-Security-Policy' in response
    assert b'text/html' not in response


def test_requests_are_limited_in_size(server):
    path = f'/{server.token}/embed/drawings'
    length = {'Content-Length': str(LARGEST_REQUEST + 1)}
    assert request(server, 'POST', path, b'', **length)[0] == 413  # before the body is read
    assert request(server, 'POST', path, iter([b'x']), **{'Transfer-Encoding': 'chunked'})[0] == 411
    assert request(server, 'POST', path, b'', **{'Content-Length': '-1'})[0] == 411
    assert request(server, 'GET', f'/{server.token}/', **{f'X{k}': 'x' for k in range(101)})[0] == 431


def test_connections_are_limited_in_number(server, monkeypatch):
    monkeypatch.setattr(server, 'slots', threading.Semaphore(1))
    assert request(server, 'GET', f'/{server.token}/')[0] == 200
    assert server.slots.acquire(timeout=60)  # given back by the first
    while server.slots.acquire(timeout=1):  # given back by requests of earlier tests; now none is left
        pass
    with pytest.raises(ConnectionError):
        request(server, 'GET', f'/{server.token}/')


def test_browser_is_redirected_by_a_private_file():
    with redirect('http://127.0.0.1:1/token/') as address:
        path = pathlib.Path(urllib.parse.urlparse(address).path)
        assert 'token' not in address and 'url=http://127.0.0.1:1/token/"' in path.read_text()
        assert path.stat().st_mode & 0o777 == 0o600
    assert not path.exists()
