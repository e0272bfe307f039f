"""`desim resume`: a stored run goes on."""

from desim.cli.options import Overrides, RunFolder, settings
from desim.cli.outcome import tell
from desim.errors import RunError


def resume(run: RunFolder, override: Overrides = None) -> None:
    """Go on with a run that was killed or stopped; --set stop.rounds=N moves its end."""
    import desim
    from desim.cli.progress import progress_bar

    try:
        with progress_bar(desim.open(run).name) as progress:
            resumed = desim.resume(run, settings(override), progress)
    except KeyboardInterrupt:
        raise RunError(f"{run}: stopped before it was where it ended; it is as it was") from None
    tell(resumed)
