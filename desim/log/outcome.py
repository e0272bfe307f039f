"""The outcome of a simulation: all that an engine hands to whoever stores the run."""

from dataclasses import dataclass, field
from typing import Any, Literal

from desim.arrays import Array


@dataclass(frozen=True)
class Outcome:
    """End of a play at `time` s after `rounds` rounds; `reason` says why it ended, in words.

    state: final arrays; iterates (rounds + 1, agents, dim) and model (rounds + 1, dim) where they
    were kept; counts: e.g. messages sent; engine and why: which one ran, and the reason for it;
    error: what to raise for a failed run, RunError(reason) where it is None; notes: more entries of
    the manifest; checkpoints: what engine.marks has found.
    """

    status: Literal["done", "stopped", "failed"]
    reason: str = ""
    time: float = 0.0
    rounds: int = 0
    state: dict[str, Array] = field(default_factory=dict)
    iterates: Array | None = None
    model: Array | None = None
    counts: dict[str, Any] = field(default_factory=dict)
    engine: str = ""
    why: str = ""
    warnings: list[str] = field(default_factory=list)
    error: Exception | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    checkpoints: dict[str, Array] = field(default_factory=dict)

    @property
    def arrays(self) -> dict[str, dict[str, Array]]:
        """The arrays to keep: state, and iterates, model and checkpoints where there are any."""
        optional = {"iterates": self.iterates, "model": self.model}
        found = {name: {name: array} for name, array in optional.items() if array is not None}
        marked = {"checkpoints": self.checkpoints} if self.checkpoints else {}
        return found | {"state": self.state} | marked
