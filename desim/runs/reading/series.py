"""Runs that differ in their seeds only belong together, under one label."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from desim.errors import DesimError
from desim.runs.played import Played
from desim.runs.reading.labels import labels

Member = TypeVar("Member", bound=Played)


@dataclass(frozen=True)
class Series(Generic[Member]):
    """Runs of one label; all but `runs[0]` differ from it in their seeds only, or are so labelled.

    runs: those that are done where any is, else all; left_out: the others.
    """

    label: str
    runs: tuple[Member, ...]
    left_out: tuple[Member, ...] = ()

    @property
    def title(self) -> str:
        """The label, and how its runs ended where none is done."""
        ended = dict.fromkeys(run.status for run in self.runs if run.status != "done")
        return f"{self.label} ({', '.join(ended)})" if ended else self.label

    @property
    def lost(self) -> tuple[Member, ...]:
        """Runs that failed where others are done: they count until a target, not at the end."""
        return tuple(run for run in self.left_out if run.status == "failed")

    @property
    def ends(self) -> dict[str, int]:
        """How many runs are left out, by how they ended."""
        return dict(Counter(run.status for run in self.left_out))


def series_of(runs: Sequence[Member] | Mapping[str, Sequence[Member]]) -> list[Series[Member]]:
    """Series in order: by label where labels are given, else of runs that are alike but for seeds.

    The same run given twice counts once. Another run of a seed that a series has already begins one
    of its own (a plug-in, or desim, may have changed in between), so that nothing is hidden and no
    seed weighs double; under a label that is given it counts with the others. Runs that cannot tell
    what they are alike to stand alone.
    """
    if isinstance(runs, Mapping):
        given = {label: _once(some) for label, some in runs.items() if len(some)}
        return [Series(label, *_parted(some)) for label, some in given.items()]
    found = list(_alike(_once(runs)))
    named = labels([counted for counted, _ in found])
    return [Series(label, *parts) for label, parts in zip(named, found, strict=True)]


Parts = tuple[tuple[Member, ...], tuple[Member, ...]]


def _once(runs: Sequence[Member]) -> list[Member]:
    """Each run once, be it opened twice."""
    found: dict[object, Member] = {}
    for run in runs:
        found.setdefault(run.directory.resolve() if run.directory else id(run), run)
    return list(found.values())


def _alike(runs: Sequence[Member]) -> Iterator[Parts[Member]]:
    """Those that count, and those left out, of each series."""
    families: dict[object, list[Member]] = {}
    for number, run in enumerate(runs):
        families.setdefault(_family(run) or number, []).append(run)
    for family in families.values():
        counted, left_out = _parted(family)
        seen: Counter[object] = Counter()
        turns: dict[int, list[Member]] = {}
        for run in counted:
            seed = run.manifest.get("seed")
            turns.setdefault(seen[seed], []).append(run)
            seen[seed] += 1
        for turn, some in turns.items():
            yield tuple(some), () if turn else left_out


def _family(run: Played) -> str | None:
    try:
        return run.alike
    except (DesimError, UnicodeDecodeError, OSError):
        return None  # its scenario cannot be read


def _parted(runs: Sequence[Member]) -> Parts[Member]:
    """The runs that are done where any is, else all; and the others."""
    done = tuple(run for run in runs if run.status == "done")
    return (done, tuple(run for run in runs if run.status != "done")) if done else (tuple(runs), ())
