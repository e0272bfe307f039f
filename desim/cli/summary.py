"""What `desim show` says about a run: a title, then one aligned line for each fact."""

from desim.reading.facts import facts
from desim.runs.run import Run


def summary(run: Run) -> list[str]:
    """Lines of text: a title, then one aligned line per fact."""
    told = facts(run)
    width = max(len(name) for name, _ in told) + 2
    return [f"{run.name}: {run.status}", *(f"  {name:{width}}{text}" for name, text in told)]
