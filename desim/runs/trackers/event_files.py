"""TensorBoard's event files: a folder for each run, whose records TensorBoard's own writer makes.

The step of a point is its round, and its wall time the virtual time in s, so that the axis
`relative` is virtual time. Values are 64-bit floats, as in the log; TensorBoard draws 32 bits.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from desim.errors import InputError, require
from desim.runs.directory import next_free
from desim.runs.trackers import Tracker, Value, writable
from desim.runs.trackers.so_far import BYTES

VERSION = "brain.Event:2"  # of event files, which their first record names
NAME = "events.out.tfevents.0.desim"  # whose middle TensorBoard looks for


class TensorBoard(Tracker):
    """Writes each run into a folder of its own in `folder`, for `tensorboard --logdir`.

    Of a study, runs have theirs in one folder, which says what varies. Metrics are written as the
    run plays, and so are bytes and an epsilon that is exact; all else that was spent by then when
    it is over. InputError without the extra desim[tensorboard], or where nothing can be written.
    """

    arguments = ("folder",)

    def __init__(self, folder: str | Path) -> None:
        require("TensorBoard", "tensorboard", "tensorboard")
        self.folder = Path(folder)

    def begins(self, title: str, parameters: Mapping[str, Any]) -> None:
        """A new folder for the run, with its parameters for the page `hparams`."""
        from tensorboard.plugins.hparams import summary_v2

        self._begin(title)
        self._write(summary_v2.hparams_pb(parameters, trial_id=title, start_time_secs=0.0))

    def _begin(self, title: str) -> Path:
        """Begin a file; the folder that it is in."""
        from tensorboard.compat.proto import event_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        writable(self.folder, "tensorboard")
        place = self.folder / self.group / title  # of its own, be it played for the second time
        try:
            place = place if self.group else next_free(self.folder, title)
            place.mkdir(parents=True, exist_ok=True)
            self.file = (place / NAME).open("wb")
        except OSError as error:
            raise InputError(
                f"tensorboard: {place}: cannot be written ({error.strerror})"
            ) from None
        self.records, self.described = RecordWriter(self.file), set[str]()
        self.records.write(event_pb2.Event(file_version=VERSION).SerializeToString())
        return place

    def begins_group(
        self, title: str, parameters: Mapping[str, Any], varied: Mapping[str, Sequence[Any]],
        metrics: Sequence[str],
    ) -> str:  # fmt: skip
        """A new folder for the study, which tells the page `hparams` what varies."""
        from tensorboard.plugins.hparams.summary_v2 import HParam, Metric, hparams_config_pb

        place = self._begin(title)
        keys = [HParam(key, _domain(values)) for key, values in varied.items()]
        several = [Metric(name) for name in [*metrics, BYTES]]
        self._write(hparams_config_pb(hparams=keys, metrics=several, time_created_secs=0.0))
        self.file.close()
        return place.name

    def writes(self, values: Sequence[Value]) -> None:
        """A record for each, on the disk when this returns."""
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.scalar.metadata import create_summary_metadata
        from tensorboard.util.tensor_util import make_tensor_proto

        for name, time, round_, value in values:
            said = Summary.Value(tag=name, tensor=make_tensor_proto(np.float64(value)))
            if name not in self.described:
                self.described.add(name)
                said.metadata.CopyFrom(create_summary_metadata(name, ""))
            self._write(Summary(value=[said]), time, round_)
        self.file.flush()

    def ends(self, status: str, reason: str) -> None:
        """The file is closed; how a run ended has no place in it."""
        self.file.close()

    def _write(self, summary: Any, time: float = 0.0, step: int = 0) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        event = Event(wall_time=time, step=step, summary=summary)
        self.records.write(event.SerializeToString())


def _domain(values: Sequence[Any]) -> Any:
    """What values a parameter has; None where they are of several kinds, or unknown."""
    from tensorboard.plugins.hparams.summary_v2 import Discrete

    kinds = {type(one) for one in values}
    if not kinds:
        return None
    if kinds <= {int, float}:
        return Discrete(sorted({float(one) for one in values}))
    return Discrete(sorted({*values})) if len(kinds) == 1 else None
