"""`desim resume`: a stored run goes on, with a progress bar."""

from pathlib import Path
from typing import TYPE_CHECKING

from desim.errors import RunError

if TYPE_CHECKING:
    from desim.runs.run import Run


def go_on(folder: Path, later: dict[str, str]) -> "Run":
    """Resume the run in `folder`, to a `later` end where one is given; RunError at a Ctrl-C."""
    import desim
    from desim.cli.progress import progress_bar

    try:
        with progress_bar(desim.open(folder).name) as progress:
            return desim.resume(folder, later, progress)
    except KeyboardInterrupt:
        raise RunError(f"{folder}: stopped before it was where it ended; it is as it was") from None
