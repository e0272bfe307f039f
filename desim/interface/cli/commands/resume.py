"""`desim resume`: a stored run goes on."""

from typing import Annotated

from desim.errors import AtOnce
from desim.interface.cli.options import (
    Board,
    Cluster,
    Flow,
    Overrides,
    RunFolder,
    Trainers,
    option,
    settings,
    trackers,
)
from desim.interface.cli.progress import Interrupted, tell

Rounds = Annotated[int | None, option("rounds", "N", "End after this many rounds instead.")]
Time = Annotated[str | None, option("time", "T", "End at this virtual time instead: 90 s.")]


def resume(
    run: RunFolder, override: Overrides = None, rounds: Rounds = None, time: Time = None,
    workers: Trainers = None, dask: Cluster = None, tensorboard: Board = None,
    mlflow: Flow = None,
) -> None:  # fmt: skip
    """Go on with a run that was killed or stopped, perhaps to a later or an earlier end."""
    import desim
    from desim.interface.cli.progress import announced, progress_bar

    ends = {"stop.rounds": rounds, "stop.time": time}
    changes = settings(override) | {key: end for key, end in ends.items() if end is not None}
    try:
        with progress_bar(desim.open(run).name) as progress, announced(progress.compiling):
            followers = trackers(tensorboard, mlflow)
            resumed = desim.resume(
                run, changes, progress, trackers=followers, workers=workers, dask=dask
            )
    except AtOnce:
        resumed = desim.open(run)
    except KeyboardInterrupt:
        text = f"{run}: stopped before it was where it ended; it is as it was"
        raise Interrupted(text) from None
    tell(resumed)
