"""Opens a page in the browser: draw a few characters of an alphabet of your own, and it tells which one you draw next.

    python -m experiments.page

One example of each character is enough; more make it surer. Where the encoder of photographs is installed
(pip install 'protojax[photos]') the page takes photos too. Everything stays on this machine. Ctrl-C ends it.
"""

import concurrent.futures
import contextlib
import dataclasses
import webbrowser

from experiments.page.alphabets import alphabets
from experiments.page.answers import ready_to_answer
from experiments.page.server import ServedLater, Server, file_leading_to_server
from experiments.running.command import launch_command
from experiments.running.config import CompilingConfig, ConfigError, option
from experiments.running.own_images import load_weights_for_own_images
from experiments.running.progress import phase
from protojax.errors import first_line
from protojax.photo_weights import photo_weights_installed


@dataclasses.dataclass(frozen=True)
class PageConfig(CompilingConfig):
    weights: str = option('omniglot-60way-1shot', 'Encoder of drawings: a name, or the weights.safetensors of a run.')
    port: int = option(0, 'Port of 127.0.0.1 that the page is at; 0: any that is free.', minimum=0)
    browser: bool = option(True, 'Open the page in the browser; its address is printed in any case.')
    data_dir: str = option(
        '',
        'Folder with prepared data sets (default: ~/tensorflow_datasets); if Omniglot is there, its alphabets can be '
        'filled in.',
    )


def run_page(config):
    """Serve the page until Ctrl-C."""
    models = {'drawings': ServedLater(lambda: _page_encoder(config.weights))}
    with phase('loading and compiling the encoder'):
        models['drawings'].result()  # with its errors, before the page opens
    if photo_weights_installed('photos'):  # compiled when it is wanted: meanwhile, drawings would be answered slowly
        models['photos'] = ServedLater(lambda: ready_to_answer(load_weights_for_own_images('photos')))
    with concurrent.futures.ThreadPoolExecutor() as pool, contextlib.ExitStack() as stack:
        server = _open_page_server(models, pool.submit(alphabets, config.data_dir or None), config.port)
        print(f'draw at {server.address} (Ctrl-C ends)', flush=True)
        if config.browser:
            pool.submit(webbrowser.open, stack.enter_context(file_leading_to_server(server.address)))
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
        finally:
            server.server_close()


def _open_page_server(models, alphabets, port):
    try:
        return Server(models, alphabets, port)
    except (OSError, OverflowError) as error:
        raise ConfigError(f'--port={port} cannot be used ({first_line(error)}); choose another') from error


def _page_encoder(name):
    """The encoder of drawings, ready to use."""
    weights = load_weights_for_own_images(name)
    if weights.encoder.item_shape[2] != 1:
        raise ConfigError(f'--weights={name} are of colour images; give those of drawings')
    return ready_to_answer(weights)


if __name__ == '__main__':
    launch_command(PageConfig(), run_page)
