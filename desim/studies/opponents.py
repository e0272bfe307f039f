"""Which case of a study is held against which other."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from desim.errors import InputError, show, spelling
from desim.studies.cases import Case


def opponents(cases: Sequence[Case], against: Mapping[str, Any]) -> list[tuple[Case, Case]]:
    """Every case with the one that it is held against: the first, or as `against` says.

    against: values by dotted key; a case's opponent is equal to it in all other keys. Or the label
    of an entry of the study's list: the opponent has the same other values. InputError where
    nobody has an opponent.
    """
    if not against:
        return [(case, cases[0]) for case in cases[1:]]
    pairs = _by_label(cases, against["label"]) if "label" in against else _by_keys(cases, against)
    found = [(case, other) for case, other in pairs if case.number != other.number]
    if found:
        return found
    known = sorted({case.name for case in cases if case.name})
    near = spelling(against["label"], known) if "label" in against else ""
    raise InputError(
        f"compare.against: found {show(dict(against))}, from which no case differs in these keys "
        f"alone; allowed: values or labels that the study's cases have{near}"
    )


def _by_label(cases: Sequence[Case], label: str) -> Iterator[tuple[Case, Case]]:
    known = {_mark(case.rest): case for case in cases if case.name == label}
    for case in cases:
        if _mark(case.rest) in known:
            yield case, known[_mark(case.rest)]


def _by_keys(cases: Sequence[Case], against: Mapping[str, Any]) -> Iterator[tuple[Case, Case]]:
    known = {_mark(case.values): case for case in cases}
    for case in cases:
        other = _mark({**case.values, **against})
        if other in known:
            yield case, known[other]


def _mark(values: Mapping[str, Any]) -> str:
    return repr(sorted((key, repr(value)) for key, value in values.items()))
