"""The page in Chromium, driven by Selenium."""

import re
import shutil

import numpy as np
import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.actions.pointer_input import PointerInput
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from experiments.page.alphabets import RUNES, handwritten
from protojax.prototype_classifier import PrototypeClassifier
from tests.experiments.page.client import rune

CHROMIUM = shutil.which('chromium') or shutil.which('chromium-browser') or shutil.which('google-chrome')
CHROMEDRIVER = shutil.which('chromedriver')
FLAGS = '--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking'
FLAGS += ' --disable-component-update --disable-sync --window-size=1200,900'


@pytest.fixture(scope='module')
def browser(tmp_path_factory):
    """Chromium with an empty profile."""
    if not (CHROMIUM and CHROMEDRIVER):
        pytest.skip('needs chromium and chromedriver: apt-get install chromium chromium-driver')
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    downloads = tmp_path_factory.mktemp('downloads')
    for flag in [*FLAGS.split(), f'--user-data-dir={tmp_path_factory.mktemp("profile")}']:
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
    yield Page(browser)
    assert not browser.get_log('browser')  # no error of the script, nothing that the security policy stopped


class Page:
    """Actions of a user."""

    def __init__(self, browser):
        self.browser = browser

    def find(self, selector):
        return self.browser.find_element('css selector', selector)

    def click(self, selector):
        self.wait(lambda: self.find(selector).click() is None)

    def text(self, selector):
        return self.find(selector).text

    def count(self, selector):
        return len(self.browser.find_elements('css selector', selector))

    def names(self):
        script = "return [...document.querySelectorAll('.class input')].map(field => field.value)"
        return self.browser.execute_script(script)

    def wait(self, condition):
        # The page may replace an element between finding and reading it.
        waiting = WebDriverWait(self.browser, 60, 0.05, [StaleElementReferenceException])
        return waiting.until(lambda _: condition())

    def draw_rune(self, name, seed, pointer='mouse'):
        """Draw a rune on the pad, with the events of a mouse, a pen or a finger ('touch')."""
        lines, pad = handwritten(np.random.default_rng((9, seed)), RUNES[name])[0], self.find('#pad')
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
        box = self.browser.execute_script('return arguments[0].getBoundingClientRect()', target)
        event = {'x': box['x'] + box['width'] / 2, 'y': box['y'] + box['height'] / 2}
        event['data'] = {'items': [], 'files': list(map(str, files)), 'dragOperationsMask': 1}
        for kind in ('dragEnter', 'dragOver', 'drop'):
            self.browser.execute_cdp_cmd('Input.dispatchDragEvent', {'type': kind, **event})

    def teach(self, name, pointer='mouse'):
        """Draw a rune, make a class of it and name it."""
        self.draw_rune(name, 0, pointer)
        count = len(self.names())
        self.click('#new')
        self.wait(lambda: len(self.names()) == count + 1)
        self.find(f'.class:nth-child({count + 1}) input').send_keys(Keys.CONTROL, 'a', Keys.NULL, name, Keys.ENTER)
        self.wait(lambda: name in self.names())


FIVE = ['gebo', 'tiwaz', 'ingwaz', 'sowilo', 'uruz']


def test_queries_are_recognised(page):
    for name, pointer in zip(FIVE, ('mouse', 'pen', 'touch', 'mouse', 'mouse'), strict=True):
        page.teach(name, pointer)
    for name in FIVE:
        page.draw_rune(name, 1)
        page.wait(lambda name=name: page.text('#verdict').split(' ·')[0].endswith(name))
        page.wait(lambda: 'ms' in page.text('#time'))
        page.click('#clear')
        page.wait(lambda: not page.text('#verdict'))
    page.draw_rune('ingwaz', 2)
    page.wait(lambda: page.text('#nearest li'))
    assert page.count('#map circle') == 5

    # The drawing is added to a class, whose prototype moves. Undo reverts both.
    before = page.find('#map').get_attribute('innerHTML')
    page.click('#bars button')
    page.wait(lambda: page.count('.examples li') == 6)
    page.wait(lambda: page.find('#map').get_attribute('innerHTML') != before)
    page.click('#undo')
    page.wait(lambda: page.count('.examples li') == 5 and page.text('#verdict'))

    page.browser.refresh()  # keeps the classes
    assert page.names() == FIVE


def test_classes_are_saved_loaded_removed_and_exported(page):
    page.teach('gebo')
    page.teach('tiwaz')
    page.click('#save')
    path = page.browser.downloads / 'classes.safetensors'
    page.wait(path.exists)
    assert PrototypeClassifier.load(path).names == ('gebo', 'tiwaz')
    page.click('[title="Remove class gebo"]')
    page.wait(lambda: page.names() == ['tiwaz'])
    page.find('#file').send_keys(str(path))
    page.wait(lambda: page.names() == ['gebo', 'tiwaz'])
    page.draw_rune('tiwaz', 1)
    page.wait(lambda: 'tiwaz' in page.text('#verdict'))
    page.click('#export')
    page.wait(lambda: list(page.browser.downloads.glob('model.*')))


def test_dropped_files_are_queries_a_class_or_examples(page, tmp_path):
    files = [tmp_path / f'{name}{seed}.png' for name in ('gebo', 'tiwaz') for seed in (1, 2, 3)]
    for file in files:
        file.write_bytes(rune(file.stem[:-1], int(file.stem[-1])))
    page.drop('#pad', files[0])
    page.wait(lambda: page.find('#shown').is_displayed())
    page.click('#new')
    page.wait(lambda: page.names() == ['A'])
    page.drop('#pad', *files[3:5])  # several make a class, because there is one only
    page.wait(lambda: page.names() == ['A', 'B'])
    page.drop('.class', files[1])
    page.wait(lambda: page.count('.class:first-child img') == 2)
    page.drop('#pad', files[2], files[5])
    page.wait(lambda: re.fullmatch('(?s)gebo3.png: .*A.*tiwaz3.png: .*B.*', page.text('#queries')))
    page.click('#queries li:last-child button')
    page.wait(lambda: 'B' in page.text('#verdict'))


def test_folders_are_classes(page, tmp_path):
    for name in ('gebo', 'tiwaz', 'uruz'):
        (tmp_path / 'runes' / name).mkdir(parents=True)
        for seed in (1, 2):
            (tmp_path / 'runes' / name / f'{seed}.png').write_bytes(rune(name, seed))
    (tmp_path / 'runes' / 'uruz' / 'notes.txt').touch()
    page.find('#folders').send_keys(str(tmp_path / 'runes'))
    page.wait(lambda: page.names() == ['gebo', 'tiwaz', 'uruz'])
    page.drop('#pad', tmp_path / 'runes' / 'uruz')  # more examples of the same class
    page.wait(lambda: [page.count(f'.class:nth-child({k}) img') for k in (1, 2, 3)] == [2, 2, 4])


def test_keyboard_is_sufficient(page):
    pad = page.find('#pad')
    pad.send_keys(' ', *[Keys.ARROW_RIGHT] * 5, *[Keys.ARROW_DOWN] * 5, ' ', Keys.ENTER)
    page.wait(lambda: page.names() == ['A'])
    pad.send_keys(' ', *[Keys.ARROW_LEFT] * 8, ' ', Keys.ENTER)
    page.wait(lambda: page.names() == ['A', 'B'])
    pad.send_keys(' ', *[Keys.ARROW_RIGHT] * 9, ' ')
    page.wait(lambda: 'B' in page.text('#verdict'))
    pad.send_keys(Keys.CONTROL, 'z')
    page.wait(lambda: not page.text('#verdict'))


def test_page_fits_a_phone_and_controls_have_names(page):
    page.browser.execute_cdp_cmd(
        'Emulation.setDeviceMetricsOverride', {'width': 360, 'height': 740, 'deviceScaleFactor': 2, 'mobile': True}
    )
    page.wait(lambda: not page.find('#fill').get_attribute('disabled'))
    page.click('#fill')
    page.wait(lambda: len(page.names()) == 24)
    assert page.browser.execute_script('return document.documentElement.scrollWidth') <= 360
    found = page.browser.execute_cdp_cmd('Accessibility.getFullAXTree', {})['nodes']
    nodes = {(node['role']['value'], node['name']['value']) for node in found if not node['ignored'] and 'name' in node}
    assert {('application', 'Drawing pad'), ('list', 'Examples of gebo'), ('textbox', 'Name of class gebo')} <= nodes
    assert not [name for role, name in nodes if role in ('list', 'region', 'button', 'textbox') and not name]
    page.browser.execute_cdp_cmd('Emulation.clearDeviceMetricsOverride', {})
