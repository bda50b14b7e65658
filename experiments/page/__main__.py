"""Browser demo: draw a few characters of your own alphabet, and the page recognises the next one that you draw.

    python -m experiments.page

One example per character is enough; more make predictions more reliable. If the encoder for photographs is installed
(pip install 'protojax[photos]'), the page also takes photos. All data stay on this machine. Press Ctrl-C to quit.
"""

import contextlib
import threading
import webbrowser

from experiments.own_images import loading
from experiments.page import alphabets, answers
from experiments.page.server import Lazy, Server, redirect
from experiments.running import cli, progress
from experiments.running.config import CompilingConfig, ConfigError, option
from protojax import errors, photo_weights


class Config(CompilingConfig):
    weights: str = option('omniglot-60way-1shot', 'Encoder for drawings: bundled, or a file of a run.')
    port: int = option(0, 'Port on 127.0.0.1; 0 picks a free port.', minimum=0)
    browser: bool = option(True, 'Open the page in the browser; the address is always printed.')
    data_dir: str = option('', 'Folder of prepared data; if Omniglot is there, the page offers its alphabets.')


def run(config: Config) -> None:
    """Serve the page until Ctrl-C."""
    with progress.phase('loading and compiling the encoder'):  # now: errors are reported before the page opens
        weights = loading.load_weights(config.weights)
        if weights.encoder.item_shape[2] != 1:
            raise ConfigError(f'--weights={config.weights} encode colour images; choose weights for drawings')
        drawings = answers.ready(weights)
    models = {'drawings': Lazy(lambda: drawings)}
    if photo_weights.installed('photos'):  # compiled on first use, because compiling would slow down drawings
        models['photos'] = Lazy(lambda: answers.ready(loading.load_weights('photos')))
    try:
        server = Server(models, Lazy(lambda: alphabets.every(config.data_dir or None)), config.port)
    except (OSError, OverflowError) as error:
        raise ConfigError(f'--port={config.port} is not available ({errors.first_line(error)})') from error
    print(f'draw at {server.address} (Ctrl-C to quit)', flush=True)
    with server, redirect(server.address) as url, contextlib.suppress(KeyboardInterrupt):
        if config.browser:
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
        server.serve_forever()
    print()


if __name__ == '__main__':
    cli.launch_command(Config, run)
