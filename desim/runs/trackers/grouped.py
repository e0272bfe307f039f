"""Trackers of a study or a tuner: its runs are members of a group, each told by who plays it.

A process that plays a run tells its tracker meanwhile, as `desim.run` does; the process that has
the study begins and ends the group, and says once what could not be written. So nobody waits for a
tracker, and no run knows whether it is followed.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from desim.errors import InputError
from desim.loggers import logger
from desim.runs.reading.series import leaves
from desim.runs.trackers import Tracker, parameter, require_trackers
from desim.scenario.schema import Scenario

LONGEST = 60  # letters of a label in a title: fewer bytes than a name of a file may have
FAR = (
    "dask: found trackers too, and the cluster's machines write where they are; allowed: local "
    "workers, or desim export of the study, when it is over"
)


def title_of(label: str, seed: int, taken: Iterable[str]) -> str:
    """A title that a folder may have, for a run of a case, and that is not taken yet."""
    folder = re.sub(r"[/\0]", "-", label).strip(". ")[:LONGEST] or "base"
    first = title = f"{folder}/seed {seed}"
    number = 1
    while title in taken:
        number += 1
        title = f"{first}-{number}"
    return title


class Case(Protocol):
    """A scenario of a study, and what varies in it, by key."""

    @property
    def label(self) -> str:
        """What it is called."""

    @property
    def values(self) -> Mapping[str, Any]:
        """Its own values."""

    @property
    def scenario(self) -> Scenario | None:
        """None where the values make none."""


def varied(scenario: Scenario | None, values: Mapping[str, Any]) -> dict[str, Any]:
    """What varies of a case, by dotted key: as its resolved scenario has it, else as written."""
    known = {".".join(place): one for place, one in leaves(scenario.written() if scenario else {})}
    return {key: parameter(known.get(key, one)) for key, one in values.items()}


class Group:
    """The trackers of a study, whose runs are to be members; without trackers it does nothing."""

    def __init__(self, trackers: Sequence[Tracker], dask: str | None = None) -> None:
        require_trackers(trackers)
        if trackers and dask is not None:
            raise InputError(FAR)
        self.trackers, self.names = tuple(trackers), dict[int, str]()
        self.titles = set[str]()
        self.lost = dict[str, None]()

    @contextmanager
    def begun(
        self,
        name: str,
        written: Mapping[str, Any],
        cases: Sequence[Case],
        keys: Iterable[str] = (),
    ) -> Iterator[None]:
        """Context in which the runs of cases play; InputError where nothing can be written.

        written: the file of the study; keys: those that vary, where not all cases are known yet.
        """
        found = dict[str, list[Any]]((key, []) for key in keys)
        for case in cases if self.trackers else ():
            for key, value in varied(case.scenario, case.values).items():
                found.setdefault(key, []).append(value)
        known = [case.scenario for case in cases if case.scenario is not None]
        metrics = dict.fromkeys(metric for one in known for metric in one.observe.metrics)
        plain = {".".join(place): parameter(one) for place, one in leaves(written)}
        ends: list[Callable[[], None]] = []
        try:
            for place, one in enumerate(self.trackers):
                leader = one.afresh()
                self.names[place] = leader.begins_group(name, plain, found, [*metrics])
                ends.append(leader.ends_group)
            yield
        finally:
            for end in ends:
                with suppress(Exception):
                    end()

    def members(self, case: Case, seed: int) -> tuple[Tracker, ...]:
        """Who follows the run of a case with a seed."""
        if not self.trackers:
            return ()
        title = title_of(case.label, seed, self.titles)
        self.titles.add(title)
        values = varied(case.scenario, case.values)
        names = enumerate(self.trackers)
        return tuple(one.afresh(title, self.names[place], values) for place, one in names)

    def heard(self, lost: str) -> None:
        """Say once what members could not write."""
        if lost and lost not in self.lost:
            self.lost[lost] = None
            text = "%s; not all of these runs are written there, and they go on"
            logger("trackers").warning(text, lost)
