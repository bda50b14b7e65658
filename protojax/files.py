"""Files that are written whole or not at all."""

import os
import pathlib


def write_whole(path: str | os.PathLike, content: str | bytes) -> None:
    """Write a file so that it is seen either as it was or complete, also after a crash."""
    path = pathlib.Path(path)
    temporary = path.with_name(f'.{path.name}.tmp')
    with open(temporary, 'wb') as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
