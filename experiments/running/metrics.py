"""Metrics of a run as JSON lines and as TensorBoard events, continued at the episode of a checkpoint."""

import json
import os
import struct
import time
from pathlib import Path

from experiments.running.workdir import Workdir, reading, writing
from protojax import files

NUMBER = (int, float)
TYPES = {'stage': (str,), 'split': (str,), 'episode': (int,), 'loss': NUMBER, 'accuracy': NUMBER}  # in every report


class Writer:
    """Writes the metrics of one stage, after removing reports later than `episode`: they will be written again."""

    def __init__(self, workdir: Workdir, stage: str, episode: int):
        self.stage, self.workdir = stage, workdir
        self.path = workdir.path / 'metrics.jsonl'
        if workdir.writes:
            with writing(self.path):
                kept = [line for line in read(workdir.path) if line['stage'] != stage or line['episode'] <= episode]
                files.write_whole(self.path, ''.join(json.dumps(line) + '\n' for line in kept))
                self._file = open(self.path, 'a')  # noqa: SIM115 - open as long as the stage lasts
                self._board = Board(workdir.path / 'tensorboard' / stage, episode)

    def write(self, episode: int, split: str, **values: float) -> None:
        """Report values of a split; they are on the disk when this returns."""
        if not self.workdir.writes:
            return
        with writing(self.path):
            self.workdir.check_presence()
            self._file.write(json.dumps({'stage': self.stage, 'episode': episode, 'split': split, **values}) + '\n')
            self._file.flush()
            os.fsync(self._file.fileno())
            for name, value in values.items():
                self._board.write(episode, tag=f'{split}/{name}', simple_value=value)
            self._board.flush()

    def close(self) -> None:
        """Close the files."""
        if self.workdir.writes:
            with writing(self.path):  # the file may hold what an earlier attempt could not write
                self._file.close()
                self._board.close()


class Board:
    """A TensorBoard event file that hides events after `episode` in earlier files of the folder.

    It writes in the calling thread, because the thread of a SummaryWriter dies silently when the disk is full and then
    blocks the run indefinitely.
    """

    def __init__(self, folder: Path, episode: int):
        from tensorboardX import event_file_writer, proto  # imported late: loads PyTorch if that is installed

        self._proto = proto
        folder.mkdir(parents=True, exist_ok=True)
        self._writer = event_file_writer.EventsWriter(str(folder / 'events'))
        start = proto.event_pb2.SessionLog(status=proto.event_pb2.SessionLog.START)
        self._writer.write_event(proto.event_pb2.Event(step=episode + 1, session_log=start))
        self.flush, self.close = self._writer.flush, self._writer.close

    def write(self, episode: int, **value) -> None:
        """Write one tensorboardX `Summary.Value`, given by its fields."""
        summary = self._proto.summary_pb2.Summary
        content = summary(value=[summary.Value(**value)])
        self._writer.write_event(self._proto.event_pb2.Event(wall_time=time.time(), step=episode, summary=content))

    def write_image(self, episode: int, tag: str, png: bytes) -> None:
        width, height = struct.unpack('>II', png[16:24])  # from the header of the file
        image = {'height': height, 'width': width, 'colorspace': 4, 'encoded_image_string': png}
        self.write(episode, tag=tag, image=self._proto.summary_pb2.Summary.Image(**image))


def read(workdir: Path) -> list[dict]:
    """Return the complete lines of metrics.jsonl, [] if the file does not exist; WorkdirError if it is corrupted."""
    path = workdir / 'metrics.jsonl'
    with reading(path):
        text = files.read_whole(path).decode() if path.exists() else ''
        reports = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith('\n')]
        for number, report in enumerate(reports, start=1):
            if not all(type(report[name]) in types for name, types in TYPES.items()):
                raise ValueError(f'line {number} is not a report')
        return reports
