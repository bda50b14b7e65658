"""The page to draw on: the server by HTTP, and the page itself in Chromium."""

import base64
import concurrent.futures
import http.client
import io
import json
import pathlib
import re
import shutil
import socket
import struct
import threading
import time
import urllib.parse
import zlib

import numpy as np
import pytest
from PIL import Image

from experiments.page.alphabets import FUTHARK, RUNES, drawn_by_hand, futhark, png_of_character
from experiments.page.answers import _support_in_request, answer_axes, ready_to_answer
from experiments.page.server import HTML, LARGEST_REQUEST, Server, file_leading_to_server
from protojax.class_files import load_classes, save_classes
from protojax.images import decode_image
from protojax.known_classes import calibrated_known_classes, known_classes, merge_known_classes, predict_known_classes
from protojax.pretrained import load_pretrained

CHROMIUM = shutil.which('chromium') or shutil.which('chromium-browser') or shutil.which('google-chrome')
CHROMEDRIVER = shutil.which('chromedriver')
FLAGS = [
    '--headless',
    '--no-sandbox',
    '--disable-gpu',
    '--disable-quic',
    '--no-first-run',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync',
    '--window-size=1200,900',
]


def done(value):
    future = concurrent.futures.Future()
    future.set_result(value)
    return future


@pytest.fixture(scope='module')
def model():
    return ready_to_answer(load_pretrained('omniglot-60way-1shot'))


@pytest.fixture(scope='module')
def server(model):
    server = Server({'drawings': done(model)}, done({FUTHARK: futhark()}))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def request(server, method, path, body=None, **headers):
    """Status, headers and body of the answer."""
    connection = http.client.HTTPConnection('127.0.0.1', server.server_port, timeout=60)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def post(server, action, body, expected=200):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    status, _, content = request(server, 'POST', f'/{server.token}/{action}/drawings', body)
    assert status == expected, content
    return json.loads(content)


def rune(name, seed):
    """A drawing of a rune that is not among those that the page fills in."""
    return png_of_character(drawn_by_hand(np.random.default_rng((7, seed)), RUNES[name])[0])


@pytest.fixture(scope='module')
def drawn(server):
    """Three classes of two examples as the page holds them, and a query of the second."""
    names = ['gebo', 'tiwaz', 'ingwaz']
    classes = [
        {'name': name, 'examples': [post(server, 'embed', rune(name, seed))['embedding'] for seed in (1, 2)]}
        for name in names
    ]
    return {'classes': classes, 'query': post(server, 'embed', rune('tiwaz', 3))['embedding']}


def numbers(code, kind='<f4'):
    return np.frombuffer(base64.b64decode(code), kind)


def embeddings_of(sent):
    labels = [label for label, entry in enumerate(sent['classes']) for _ in entry['examples']]
    return np.stack([numbers(code) for entry in sent['classes'] for code in entry['examples']]), labels


# ---- Who gets an answer ---------------------------------------------------------------------------------------------


def test_the_page_is_for_this_machine_and_loads_nothing_from_elsewhere(server):
    assert server.server_address[0] == '127.0.0.1'
    status, headers, content = request(server, 'GET', f'/{server.token}/')
    assert status == 200 and content == HTML.read_bytes()
    policy = headers['Content-Security-Policy']
    assert "default-src 'none'" in policy and 'unsafe' not in policy and policy.count("'sha256-") == 2
    assert set(re.findall(rb'https?://[^\s\'"]+', content)) == {b'http://www.w3.org/2000/svg'}  # a name, not an address


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
def test_strangers_get_nothing(server, path, headers):
    known = {'token': server.token, 'port': server.server_port}
    headers = {name: value.format(**known) for name, value in headers.items()}
    for method in ('GET', 'POST'):
        status, _, content = request(server, method, path.format(**known), b'' if method == 'POST' else None, **headers)
        assert status == 404 and b'error' in content


@pytest.mark.parametrize('line', [b'', b'x', b'GET /', b'<script> / HTTP/1.1', b'GET / HTTP/9', b'x ' * 999])
def test_what_is_no_request_is_refused_as_all_others(server, line):
    with socket.create_connection(('127.0.0.1', server.server_port), timeout=60) as connection:
        connection.sendall(line + b'\r\n\r\n')
        connection.shutdown(socket.SHUT_WR)
        said = b''.join(iter(lambda: connection.recv(1 << 16), b''))
    if line:
        assert re.match(rb'HTTP/1.1 (4|50)', said) and b'Content-Security-Policy' in said and b'text/html' not in said
    else:
        assert not said


def test_requests_are_limited_in_size(server):
    path = f'/{server.token}/embed/drawings'
    length = {'Content-Length': str(LARGEST_REQUEST + 1)}
    assert request(server, 'POST', path, b'', **length)[0] == 413  # before anything of it is read
    assert request(server, 'POST', path, iter([b'x']), **{'Transfer-Encoding': 'chunked'})[0] == 411
    assert request(server, 'POST', path, b'', **{'Content-Length': '-1'})[0] == 411


def test_as_many_classes_as_fit_into_a_request_do_not_fill_the_memory(server, drawn):
    classes = [{'name': str(k), 'examples': drawn['classes'][0]['examples'][:1]} for k in range(3_000)]
    assert 'more than this page can compare' in post(server, 'look', {'classes': classes}, expected=400)['error']


def test_many_classes_of_a_file_are_not_compared_each_with_each(model):
    class Name(str):
        comparisons = 0
        __hash__ = str.__hash__

        def __eq__(self, other):
            Name.comparisons += 1
            return str.__eq__(self, other)

    classes = [{**SAVED, 'name': Name(k)} for k in range(100)]
    support = _support_in_request(model, {'classes': classes, 'temperature': 1, 'threshold': None})
    assert len(support.known.names) == 100 and Name.comparisons < 1000


@pytest.fixture
def impatient(monkeypatch):
    """A server without encoders that serves two connections and waits for a head half a second."""
    monkeypatch.setattr('experiments.page.server.MOST_CONNECTIONS', 2)
    monkeypatch.setattr('experiments.page.incoming.HEAD_PATIENCE', 0.5)
    server = Server({}, done({}))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def connected(server):
    return socket.create_connection(('127.0.0.1', server.server_port), timeout=10)


def test_connections_that_say_nothing_do_not_keep_the_page_from_others(impatient):
    with connected(impatient) as first, connected(impatient) as second:
        with connected(impatient) as third:
            assert third.recv(1) == b''
        assert first.recv(1) == second.recv(1) == b''
    assert request(impatient, 'GET', f'/{impatient.token}/')[0] == 200


def test_a_head_that_comes_in_drops_is_not_waited_for(impatient):
    with connected(impatient) as slow, pytest.raises(ConnectionError):
        for _ in range(100):
            slow.sendall(b'x')
            time.sleep(0.05)


def test_our_own_page_may_rest_between_two_requests(impatient):
    connection = http.client.HTTPConnection('127.0.0.1', impatient.server_port, timeout=10)
    for _ in range(2):
        connection.request('GET', f'/{impatient.token}/')
        connection.auto_open = 0  # the same connection again, or an error
        assert connection.getresponse().read() == HTML.read_bytes()
        time.sleep(0.8)
    connection.close()


@pytest.mark.parametrize('head', [{'X': 'x' * 20_000}, {f'X{k}': 'x' * 1000 for k in range(20)}], ids=['line', 'lines'])
def test_the_head_of_a_request_is_limited_in_size(impatient, head):
    assert request(impatient, 'GET', f'/{impatient.token}/', **head)[0] == 431


def test_the_browser_is_led_to_the_page_by_a_file_that_only_its_owner_reads():
    with file_leading_to_server('http://127.0.0.1:1/token/') as address:
        path = pathlib.Path(urllib.parse.urlparse(address).path)
        assert 'token' not in address and 'url=http://127.0.0.1:1/token/"' in path.read_text()
        assert path.stat().st_mode & 0o777 == 0o600
    assert not path.exists()


def enormous_png():
    """The head of an image of 100,000 x 100,000 pixels."""

    def chunk(kind, data):
        return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))

    head = chunk(b'IHDR', struct.pack('>IIBBBBB', 100_000, 100_000, 8, 0, 0, 0, 0))
    return b'\x89PNG\r\n\x1a\n' + head + chunk(b'IDAT', zlib.compress(b'\0' * 100)) + chunk(b'IEND', b'')


def gif():
    stream = io.BytesIO()
    Image.new('L', (20, 20)).save(stream, 'GIF')
    return stream.getvalue()


@pytest.mark.parametrize(
    'contents', [b'', b'<svg onload="alert(1)"/>', rune('gebo', 1)[:200], enormous_png(), gif()], ids=lambda c: len(c)
)
def test_hostile_images_are_refused(server, contents):
    assert 'the image' in post(server, 'embed', contents, expected=400)['error']


GOOD = base64.b64encode(np.zeros(64, '<f4')).decode()
NOT_FINITE = base64.b64encode(np.full(64, np.nan, '<f4')).decode()
SAVED = {'name': 'a', 'examples': [], 'sum': base64.b64encode(np.zeros(64, '<f8')).decode(), 'count': 1}


@pytest.mark.parametrize(
    'sent',
    [
        b'{',
        b'[' * 100_000,
        [],
        {},
        {'classes': []},
        {'classes': {'a': 1}},
        {'classes': [{'name': 'a', 'examples': []}]},
        {'classes': [{'name': 'a', 'examples': ['!']}]},
        {'classes': [{'name': 'a', 'examples': [GOOD[:8]]}]},
        {'classes': [{'name': 'a', 'examples': [NOT_FINITE]}]},
        {'classes': [{'name': '', 'examples': [GOOD]}]},
        {'classes': [{'name': 'a' * 101, 'examples': [GOOD]}]},
        {'classes': [{'name': 'a', 'examples': [GOOD]}] * 2},
        {'classes': [{'name': 'a', 'examples': [GOOD]}], 'query': GOOD[:8]},
        {'classes': [{'name': 'a', 'examples': [GOOD]}], 'axes': GOOD},
        {'classes': [SAVED]},
        {'classes': [{**SAVED, 'count': 0}], 'temperature': 1, 'threshold': None},
        {'classes': [{**SAVED, 'count': 10**12}], 'temperature': 1, 'threshold': None},
        {'classes': [{**SAVED, 'count': 1.5}], 'temperature': 1, 'threshold': None},
        {'classes': [{**SAVED, 'count': '7'}], 'temperature': 1, 'threshold': None},
        {'classes': [SAVED], 'temperature': 0, 'threshold': None},
        {'classes': [SAVED], 'temperature': 1e300, 'threshold': None},
        {'classes': [SAVED], 'temperature': 1, 'threshold': 1e300},
        {'classes': [SAVED], 'temperature': 1, 'threshold': 10**400},
        {'classes': [SAVED], 'temperature': 1, 'threshold': '1'},
        {'classes': [SAVED, {'name': 'b', 'examples': []}], 'temperature': 1, 'threshold': 1},
    ],
    ids=lambda sent: str(sent)[:80],
)
def test_nonsense_is_refused_with_a_reason(server, sent):
    assert post(server, 'look', sent, expected=400)['error']


def test_unknown_actions_encoders_and_alphabets_are_refused(server):
    for path in ('embed/photos', 'nothing/drawings', 'fill/drawings'):
        assert request(server, 'POST', f'/{server.token}/{path}', b'x')[0] == 400


# ---- What the answers are -------------------------------------------------------------------------------------------


def test_a_drawing_is_embedded_as_the_library_does(server, model):
    contents = rune('gebo', 1)
    answer = post(server, 'embed', contents)
    expected = model.weights.embed(decode_image(contents, model.form)[None])[0]
    np.testing.assert_allclose(numbers(answer['embedding']), expected, rtol=1e-5)
    shown = Image.open(io.BytesIO(base64.b64decode(answer['picture'].split(',')[1])))
    assert shown.size == (105, 105) and np.asarray(shown)[0, 0] == 255  # dark on light


def test_predictions_are_those_of_the_library(server, drawn):
    found = post(server, 'look', drawn)['query']
    embeddings, labels = embeddings_of(drawn)
    query = numbers(drawn['query'])
    names = [entry['name'] for entry in drawn['classes']]
    known = calibrated_known_classes(known_classes(embeddings, labels, names), embeddings, labels)
    expected = predict_known_classes(known, query[None])
    np.testing.assert_allclose(found['probabilities'], expected.probabilities[0], rtol=1e-4, atol=1e-7)
    assert np.argmax(found['probabilities']) == 1
    assert found['unknown'] == bool(expected.unknown[0])
    distances = [np.sum((embedding - query) ** 2) for embedding in embeddings]
    assert found['nearest'] == sorted(range(6), key=distances.__getitem__)[:5]


def test_prototypes_are_in_the_middle_of_their_examples_on_the_map(server, drawn):
    found = post(server, 'look', drawn)
    middles = np.reshape(found['examples'], (3, 2, 2)).mean(1)
    np.testing.assert_allclose(found['prototypes'], middles, atol=1e-4)


def test_the_map_shows_most_of_what_differs_and_does_not_turn():
    points = np.random.default_rng(0).normal(size=(50, 8)) * [5, 3, 1, 1, 1, 1, 1, 1]
    axes = answer_axes(points)
    np.testing.assert_allclose(np.abs(axes[:, :2]), np.eye(2), atol=0.2)
    before = np.array([[0.0, 1.0], [-1.0, 0.0]]) @ axes  # a quarter turn
    np.testing.assert_allclose(answer_axes(points, before), before, atol=1e-9)
    assert np.isfinite(answer_axes(points[:1])).all()


def test_a_saved_file_is_that_of_the_classify_command_and_loads_again(server, model, drawn, tmp_path):
    path = tmp_path / 'classes.safetensors'
    path.write_bytes(base64.b64decode(post(server, 'save', drawn)['file']))
    known = load_classes(path, encoder=model.digest)
    assert known.names == ('gebo', 'tiwaz', 'ingwaz') and known.counts.tolist() == [2, 2, 2]
    loaded = post(server, 'load', path.read_bytes())
    before = post(server, 'look', drawn)['query']
    after = post(server, 'look', {**loaded, 'query': drawn['query']})['query']
    np.testing.assert_allclose(after['probabilities'], before['probabilities'], rtol=1e-5)

    # An example and a class more, in another order: what the file knows is added to, exactly.
    more = known_classes(np.stack([numbers(drawn['query'])] * 2), [0, 1], ['new', 'tiwaz'])
    tiwaz = {**loaded['classes'][1], 'examples': [drawn['query']]}
    new = {'name': 'new', 'examples': [drawn['query']]}
    grown = {**loaded, 'classes': [new, tiwaz, loaded['classes'][0]]}
    path.write_bytes(base64.b64decode(post(server, 'save', grown)['file']))
    found, expected = load_classes(path), merge_known_classes(known, more)
    assert found.names == ('new', 'tiwaz', 'gebo')
    for name in found.names:
        np.testing.assert_array_equal(found.sums[found.names.index(name)], expected.sums[expected.names.index(name)])


def test_files_of_other_weights_and_damaged_ones_are_refused(server, model, tmp_path):
    path = tmp_path / 'classes.safetensors'
    save_classes(path, known_classes(np.eye(64)[:2], [0, 1], ['a', 'b']), encoder='another')
    assert 'other weights' in post(server, 'load', path.read_bytes(), expected=400)['error']
    save_classes(path, known_classes(np.eye(5)[:2], [0, 1], ['a', 'b']), encoder=model.digest)
    assert 'other weights' in post(server, 'load', path.read_bytes(), expected=400)['error']
    error = post(server, 'load', path.read_bytes()[:-3], expected=400)['error']
    assert 'the file holds no usable classes' in error and str(tmp_path) not in error


def test_the_runes_that_are_filled_in_recognise_other_drawings_of_them(server):
    filled = post(server, 'fill', FUTHARK.encode())
    assert [entry['name'] for entry in filled['classes']] == list(RUNES)
    for entry in filled['classes']:
        entry['examples'] = [example['embedding'] for example in entry['examples']]
    right = 0
    for place, name in enumerate(RUNES):
        query = post(server, 'embed', rune(name, 5))['embedding']
        right += np.argmax(post(server, 'look', {**filled, 'query': query})['query']['probabilities']) == place
    assert right >= 20


# ---- The page in a browser ------------------------------------------------------------------------------------------


@pytest.fixture(scope='module')
def browser(tmp_path_factory):
    """Chromium with an empty profile, which selenium drives."""
    webdriver = pytest.importorskip('selenium.webdriver', reason='needs selenium')
    if not (CHROMIUM and CHROMEDRIVER):
        pytest.skip('needs chromium and chromedriver: apt-get install chromium chromium-driver')
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    downloads = tmp_path_factory.mktemp('downloads')
    for flag in [*FLAGS, f'--user-data-dir={tmp_path_factory.mktemp("profile")}']:
        options.add_argument(flag)
    options.add_experimental_option('prefs', {'download.default_directory': str(downloads)})
    options.set_capability('goog:loggingPrefs', {'browser': 'ALL'})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(CHROMEDRIVER))
    browser.downloads = downloads
    yield browser
    browser.quit()


@pytest.fixture
def page(browser, server):
    browser.switch_to.new_window('tab')  # a tab has its own classes, so each test begins with none
    browser.get(server.address)
    yield Page(browser, server.address)
    assert not browser.get_log('browser')  # no error of the script, nothing that the security policy stopped


class Page:
    """What a person does with the page."""

    def __init__(self, browser, address):
        self.browser, self.address = browser, address

    def find(self, selector):
        return self.browser.find_element('css selector', selector)

    def click(self, selector):
        self.find(selector).click()

    def text(self, selector):
        return self.find(selector).text

    def names(self):
        script = "return [...document.querySelectorAll('.class input')].map(field => field.value)"
        return self.browser.execute_script(script)

    def wait(self, condition):
        from selenium.common.exceptions import StaleElementReferenceException
        from selenium.webdriver.support.ui import WebDriverWait

        # The page may replace an element between finding and reading it.
        waiting = WebDriverWait(self.browser, 60, 0.05, [StaleElementReferenceException])
        return waiting.until(lambda _: condition())

    def draw(self, lines, pointer='mouse'):
        """Draw lines of the unit square on the pad, with the events of a mouse, a pen or a finger ('touch')."""
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.actions.pointer_input import PointerInput

        pad = self.find('#pad')
        actions = ActionChains(self.browser, duration=0, devices=[PointerInput(pointer, pointer)])
        side = pad.rect['width']
        for line in lines:
            for number, point in enumerate(np.round((np.asarray(line) - 0.5) * side).astype(int).tolist()):
                actions.move_to_element_with_offset(pad, *point)
                if number == 0:
                    actions.click_and_hold()
            actions.release()
        actions.perform()

    def drop(self, selector, *files):
        """Drag files from elsewhere over an element and drop them."""
        target = self.find(selector)
        self.browser.execute_script('arguments[0].scrollIntoView({block: "center"})', target)
        x, y, width, height = self.browser.execute_script(
            'const box = arguments[0].getBoundingClientRect(); return [box.x, box.y, box.width, box.height]', target
        )
        event = {'x': x + width / 2, 'y': y + height / 2}
        event['data'] = {'items': [], 'files': list(map(str, files)), 'dragOperationsMask': 1}
        for kind in ('dragEnter', 'dragOver', 'drop'):
            self.browser.execute_cdp_cmd('Input.dispatchDragEvent', {'type': kind, **event})

    def examples(self):
        """The pictures of each class."""
        script = "return [...document.querySelectorAll('.class')].map(one => [...one.querySelectorAll('img')])"
        return self.browser.execute_script(script)

    def accessible(self):
        """What a screen reader is told of the page: {(role, name)}, and the live regions."""
        nodes = self.browser.execute_cdp_cmd('Accessibility.getFullAXTree', {})['nodes']
        nodes = [node for node in nodes if not node['ignored']]
        live = [node for node in nodes for p in node['properties'] if p['name'] == 'live']
        return {(node['role']['value'], node['name']['value']) for node in nodes if 'name' in node}, live

    def draw_rune(self, name, seed):
        self.draw(drawn_by_hand(np.random.default_rng((9, seed)), RUNES[name])[0])

    def teach(self, name):
        """Draw a rune, make a class of it and name it."""
        from selenium.webdriver.common.keys import Keys

        self.draw_rune(name, 0)
        count = len(self.names())
        self.click('#new')
        self.wait(lambda: len(self.names()) == count + 1)
        self.find(f'.class:nth-child({count + 1}) input').send_keys(Keys.CONTROL, 'a', Keys.NULL, name, Keys.ENTER)
        self.wait(lambda: name in self.names())


FIVE = ['gebo', 'tiwaz', 'ingwaz', 'sowilo', 'uruz']


def test_five_classes_are_drawn_and_queries_recognised(page, tmp_path):
    for name in FIVE:
        page.teach(name)
    for name in FIVE:
        page.draw_rune(name, 1)
        page.wait(lambda name=name: page.text('#verdict').split(' ·')[0].endswith(name))
        page.wait(lambda: 'ms' in page.text('#time'))
        page.click('#clear')
        page.wait(lambda: not page.text('#verdict'))
    page.draw_rune('ingwaz', 2)
    page.wait(lambda: page.text('#nearest li'))
    assert len(page.browser.find_elements('css selector', '#map circle')) == 5
    assert page.browser.save_screenshot(str(tmp_path / 'page.png'))
    with Image.open(tmp_path / 'page.png') as screenshot:
        assert len(np.unique(screenshot.convert('L').resize((60, 45)))) > 20

    # What is drawn can be added to a class; its prototype moves. Undo takes that back, drawing and all.
    before = page.find('#map').get_attribute('innerHTML')
    page.click('#bars button')
    page.wait(lambda: len(page.browser.find_elements('css selector', '.examples li')) == 6)
    page.wait(lambda: page.find('#map').get_attribute('innerHTML') != before)
    page.click('#undo')
    page.wait(lambda: len(page.browser.find_elements('css selector', '.examples li')) == 5 and page.text('#verdict'))

    # A second tab knows nothing of this one.
    first = page.browser.current_window_handle
    page.browser.switch_to.new_window('tab')
    page.browser.get(page.address)
    assert page.names() == []
    page.browser.close()
    page.browser.switch_to.window(first)
    assert page.names() == FIVE
    page.browser.refresh()  # and a reload loses nothing
    assert page.names() == FIVE


def test_classes_are_saved_loaded_and_removed(page):
    page.teach('gebo')
    page.teach('tiwaz')
    page.click('#save')
    path = page.browser.downloads / 'classes.safetensors'
    page.wait(path.exists)
    assert load_classes(path).names == ('gebo', 'tiwaz')
    page.click('[title="Remove class gebo"]')
    page.wait(lambda: page.names() == ['tiwaz'])
    page.find('#file').send_keys(str(path))
    page.wait(lambda: page.names() == ['gebo', 'tiwaz'])
    page.draw_rune('tiwaz', 1)
    page.wait(lambda: 'tiwaz' in page.text('#verdict'))


def test_an_image_takes_the_place_of_a_drawing_and_what_is_none_is_refused(page, tmp_path):
    (tmp_path / 'drawing.png').write_bytes(rune('uruz', 1))
    (tmp_path / 'wrong.png').write_bytes(b'nothing')
    page.find('#images').send_keys(str(tmp_path / 'drawing.png'))
    page.wait(lambda: page.find('#shown').is_displayed())
    page.click('#new')
    page.wait(lambda: page.names() == ['A'])
    page.find('#images').send_keys(str(tmp_path / 'wrong.png'))
    page.wait(lambda: 'not a whole PNG' in page.text('#message'))
    logged = page.browser.get_log('browser')
    assert len(logged) == 1 and '400' in logged[0]['message']


def test_dropped_files_are_a_query_a_class_or_examples(page, tmp_path):
    files = [tmp_path / f'{name}{seed}.png' for name in ('gebo', 'tiwaz') for seed in (1, 2, 3)]
    for file in files:
        file.write_bytes(rune(file.stem[:-1], int(file.stem[-1])))
    page.drop('#pad', files[0])
    page.wait(lambda: page.find('#shown').is_displayed())
    page.click('#new')
    page.wait(lambda: page.names() == ['A'])
    page.drop('#pad', *files[3:5])  # several make a class
    page.wait(lambda: page.names() == ['A', 'B'])
    page.drop('.class', files[1])
    page.wait(lambda: [len(own) for own in page.examples()] == [2, 2])
    page.drop('#pad', files[5])
    page.wait(lambda: page.text('#verdict').startswith('B'))


def test_pens_and_fingers_draw(page):
    for number, pointer in enumerate(('pen', 'touch')):
        page.draw([[(0.2, 0.2), (0.5, 0.7), (0.8, 0.2)]], pointer)
        page.click('#new')
        page.wait(lambda count=number + 1: len(page.names()) == count)


def test_the_keyboard_alone_will_do(page):
    from selenium.webdriver.common.keys import Keys

    pad = page.find('#pad')
    pad.send_keys(' ', *[Keys.ARROW_RIGHT] * 5, *[Keys.ARROW_DOWN] * 5, ' ', Keys.ENTER)
    page.wait(lambda: page.names() == ['A'])
    pad.send_keys(' ', *[Keys.ARROW_LEFT] * 8, ' ', Keys.ENTER)
    page.wait(lambda: page.names() == ['A', 'B'])
    pad.send_keys(' ', *[Keys.ARROW_RIGHT] * 9, ' ')
    page.wait(lambda: 'B' in page.text('#verdict'))
    pad.send_keys(Keys.CONTROL, 'z')
    page.wait(lambda: not page.text('#verdict'))


def test_a_phone_is_wide_enough_and_everything_has_a_name(page):
    page.browser.execute_cdp_cmd(
        'Emulation.setDeviceMetricsOverride', {'width': 360, 'height': 740, 'deviceScaleFactor': 2, 'mobile': True}
    )
    page.wait(lambda: not page.find('#fill').get_attribute('disabled'))
    page.click('#fill')
    page.wait(lambda: len(page.names()) == 24)
    assert page.browser.execute_script('return document.documentElement.scrollWidth') <= 360
    for control in page.browser.find_elements('css selector', 'button, input, select, canvas, svg, img'):
        if control.is_displayed():
            assert control.accessible_name, control.get_attribute('outerHTML')
    told, live = page.accessible()
    expected = {
        ('application', 'Drawing pad'),
        ('button', 'Remove class gebo'),
        ('button', 'Remove example 3 of gebo'),
        ('image', 'Map of 24 classes'),
        ('list', 'Examples of gebo'),
        ('region', 'Which is it?'),
        ('textbox', 'Name of class gebo'),
    }
    assert expected <= told and len(live) == 3  # the hint, messages and the verdict
    assert not [name for role, name in told if role in ('list', 'region', 'button', 'textbox') and not name]
    page.browser.execute_cdp_cmd('Emulation.clearDeviceMetricsOverride', {})
