"""Opens a page in the browser: draw a few characters of an alphabet of your own, and it tells which one you draw next.

    python -m experiments.page

One example of each character is enough; more make it surer. Where the encoder of photographs is installed
(pip install 'protojax[photos]') the page takes photos too. Everything stays on this machine. Ctrl-C ends it.
"""

import concurrent.futures
import dataclasses
import webbrowser

from experiments.page import answers
from experiments.page.alphabets import alphabets
from experiments.page.server import Server
from experiments.running.command import CommandConfig, launch_command
from experiments.running.config import MAIN, ConfigError, option
from experiments.running.own_images import load_weights
from protojax import photo_weights
from protojax.errors import first_line


@dataclasses.dataclass(frozen=True)
class PageConfig(CommandConfig):
    weights: str = option(
        'omniglot-60way-1shot', 'Encoder of drawings: a name, or the weights.safetensors of a run.', group=MAIN
    )
    port: int = option(0, 'Port of 127.0.0.1 that the page is at; 0: any that is free.', group=MAIN, minimum=0)
    browser: bool = option(True, 'Open the page in the browser; its address is printed in any case.', group=MAIN)
    data_dir: str = option(
        '',
        'Folder with prepared data sets (default: ~/tensorflow_datasets); if Omniglot is there, its alphabets can be '
        'filled in.',
        group=MAIN,
    )


def run(config, arguments):
    """Serve the page until Ctrl-C."""
    if arguments:
        raise ConfigError(f'{arguments[0]!r} is no flag; flags begin with --, see --help')
    print('loading and compiling the encoder ...', flush=True)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        models = {'drawings': pool.submit(drawings, config.weights)}
        models['drawings'].result()  # with its errors, before the page opens
        if photo_weights.installed('photos'):
            models['photos'] = pool.submit(lambda: answers.ready(load_weights('photos')))
        server = open_server(models, pool.submit(alphabets, config.data_dir or None), config.port)
        print(f'draw at {server.address} (Ctrl-C ends)', flush=True)
        if config.browser:
            pool.submit(webbrowser.open, server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
        finally:
            server.server_close()


def open_server(models, alphabets, port):
    try:
        return Server(models, alphabets, port)
    except (OSError, OverflowError) as error:
        raise ConfigError(f'--port={port} cannot be used ({first_line(error)}); choose another') from error


def drawings(name):
    """The encoder of drawings, ready to use."""
    weights = load_weights(name)
    if weights.encoder.item_shape[2] != 1:
        raise ConfigError(f'--weights={name} are of colour images; give those of drawings')
    return answers.ready(weights)


if __name__ == '__main__':
    launch_command(PageConfig(), run)
