"""TensorBoard's event files: numbers in the course of training, and pictures."""

import struct
import time

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary


class Board:
    """A file of events that begins by hiding what earlier files of the folder hold after an episode.

    Written in this thread: that of a SummaryWriter would end unseen on a full disk, and the run wait for it for ever.
    """

    def __init__(self, folder, episode):
        folder.mkdir(parents=True, exist_ok=True)
        self._writer = EventsWriter(str(folder / 'events'))
        self._writer.write_event(Event(step=episode + 1, session_log=SessionLog(status=SessionLog.START)))

    def write_number(self, tag, episode, number):
        self._write(episode, Summary.Value(tag=tag, simple_value=number))

    def write_picture(self, tag, episode, png):
        """png: the bytes of a PNG file, whose header has its size."""
        width, height = struct.unpack('>II', png[16:24])
        image = Summary.Image(height=height, width=width, colorspace=4, encoded_image_string=png)
        self._write(episode, Summary.Value(tag=tag, image=image))

    def _write(self, episode, value):
        self._writer.write_event(Event(wall_time=time.time(), step=episode, summary=Summary(value=[value])))

    def flush(self):
        self._writer.flush()

    def close(self):
        self._writer.close()
