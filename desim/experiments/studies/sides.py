"""The two sides of a case: the method that is compared, and the problem that it is given.

Keys of the algorithm, of whom it waits for, whom it invites and what it sends are the method's; the
others, of data, network and devices, are the problem's. An entry of a study's list that changes a
key of the method is the method as a whole.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from desim.errors import InputError, refusal
from desim.runs.reading.series import setting_text

METHOD = ("algorithm", "policy", "participation", "codec")  # sections of a scenario
PLAIN = ("name", "include", "source", "kind")  # keys whose values say enough alone
LABEL = "label"
Values = Mapping[str, Any]


@dataclass(frozen=True)
class Sided:
    """The method and the problem of a case, in words."""

    method: str
    problem: str


def sided(
    cases: Sequence[Values], listed: frozenset[str] = frozenset(), chosen: Sequence[str] = ()
) -> list[Sided]:
    """The two sides of each case, in order.

    cases: values by dotted key, under `label` the name of the list's entry, which stands for the
    `listed` keys; chosen: the method's keys, sections, or label; default: as this module says.
    InputError for a key that no case differs in.
    """
    keys = list(dict.fromkeys(key for case in cases for key in case))
    for one in chosen:
        if not any(_within(key, one) for key in keys):
            allowed = ", ".join(keys) or "none, as there is one case"
            raise InputError(f"methods: {refusal(one, allowed, keys)}")
    found = {key for key in keys for one in chosen or METHOD if _within(key, one)}
    if chosen:
        found |= {key for key in keys if LABEL in found and key in listed}
    elif LABEL in keys and found & listed:
        found |= {LABEL, *listed}
    mine, theirs = ([key for key in keys if (key in found) == side] for side in (True, False))
    sides = [labels([_part(case, some, listed) for case in cases]) for some in (mine, theirs)]
    return [Sided(*one) for one in zip(*sides, strict=True)]


def _within(key: str, section: str) -> bool:
    return key == section or key.startswith(f"{section}.")


def _part(case: Values, keys: Sequence[str], listed: frozenset[str]) -> dict[str, Any]:
    """The values of one side; those that the label stands for are not said again."""
    hidden = listed if LABEL in keys and LABEL in case else frozenset()
    return {key: case[key] for key in keys if key in case and key not in hidden}


def labels(cases: Sequence[Values]) -> list[str]:
    """Each case in words: the one or two values that tell all apart, else all of them; "base"."""
    whole = [marked(case) for case in cases]
    keys = list(dict.fromkeys(key for case in cases for key in case))
    few = itertools.chain(((key,) for key in keys), itertools.combinations(keys, 2), [tuple(keys)])
    for some in few:
        found = [_words(case, some) for case in cases]
        if len(set(found)) == len(set(whole)):
            return found
    numbers = {mark: number for number, mark in enumerate(dict.fromkeys(whole), 1)}
    return [
        f"{_words(case, keys)} #{numbers[mark]}" for case, mark in zip(cases, whole, strict=True)
    ]


def marked(case: Values) -> str:
    """The values of a case as text, by which equal ones are found."""
    return repr(sorted((key, repr(value)) for key, value in case.items()))


def _words(case: Values, keys: Sequence[str]) -> str:
    alone = (*PLAIN, LABEL)
    found = [
        str(setting_text(case[key])) if short(key) in alone else short_setting(key, case[key])
        for key in keys
        if key in case
    ]
    return ", ".join(found) or "base"


def short(key: str) -> str:
    """The end of a dotted key, which is what people call it."""
    return key.rpartition(".")[2]


def short_setting(key: str, value: Any) -> str:
    """A value with the end of its key."""
    return f"{short(key)} {setting_text(value)}"
