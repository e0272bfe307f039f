"""`desim show`: a run in words."""

from desim.interface.cli.options import RunFolder
from desim.interface.cli.progress import tell_all


def show(run: RunFolder) -> None:
    """Summarise a run: how it ended, time, messages, metrics, who was slowest."""
    import desim

    tell_all(desim.open(run))
