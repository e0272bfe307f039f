"""What the keys of a study file may hold: ranges, values by dotted key, cases, laws, targets."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from desim.errors import refusal, show, spelling
from desim.fields.numbers import finite, target
from desim.scenario.schema import SECTIONS
from desim.scenario.sections.observe import METRICS
from desim.scenario.tree import native

RANGE = re.compile(r"\s*(-?\d{1,15})\s*\.\.\s*(-?\d{1,15})\s*")
MOST = 1_000_000  # values of one key, and runs of a study
LAWS = ("uniform", "log_uniform", "integer", "choice")


def expanded(value: object) -> tuple[Any, ...]:
    """The values of a list, or of `0..99`, both ends included; in a list ranges may stand too."""
    if isinstance(value, str) and RANGE.fullmatch(value):
        value = [value]
    if not isinstance(value, list | tuple):
        raise ValueError(refusal(value, "a list of values, or a range such as 0..99"))
    found: list[Any] = []
    for one in value:
        ends = RANGE.fullmatch(one) if isinstance(one, str) else None
        low, high = (int(ends[1]), int(ends[2])) if ends else (0, 0)
        if low > high or high - low >= MOST:
            raise ValueError(refusal(one, f"a range upwards, of at most {MOST} numbers"))
        found += range(low, high + 1) if ends else [native(one)]
    if not found:
        raise ValueError("found no value; allowed: at least one")
    twice = [one for n, one in enumerate(found) if one in found[:n]] if len(found) < 1000 else []
    if twice or (len(found) >= 1000 and len({repr(one) for one in found}) < len(found)):
        raise ValueError(f"found a value twice{f': {show(twice[0])}' if twice else ''}")
    return tuple(found)


def settings(value: object) -> dict[str, Any]:
    """Values by dotted key of a scenario."""
    if not isinstance(value, Mapping):
        raise ValueError(refusal(value, "a mapping of dotted keys, as in {algorithm.rho: 0.1}"))
    for key in value:
        parts = key.split(".") if isinstance(key, str) else [""]
        if not all(part.strip() for part in parts):
            raise ValueError(refusal(key, "a dotted key such as algorithm.rho"))
        if parts[0] not in SECTIONS:
            allowed = f"keys of a scenario: {', '.join(SECTIONS)}"
            raise ValueError(refusal(key, allowed) + spelling(parts[0], SECTIONS))
    return {key: native(one) for key, one in value.items()}


def inside(keys: Iterable[str], others: Iterable[str]) -> tuple[str, str] | None:
    """The first of dotted keys that is inside one of the others, and that one: it would be lost."""
    pairs = ((key, one) for key in keys for one in others if key.startswith(f"{one}."))
    return next(pairs, None)


def against(value: object) -> dict[str, Any]:
    """Values of dotted keys, or the label of an entry of the list."""
    if isinstance(value, Mapping) and set(value) == {"label"} and isinstance(value["label"], str):
        return dict(value)
    if not isinstance(value, Mapping):
        allowed = "a mapping of dotted keys, as in {algorithm.rho: 0.1}, or {label: ...} of a list"
        raise ValueError(refusal(value, allowed))
    return settings(value)


def methods(value: object) -> tuple[str, ...]:
    """Dotted keys or sections that are the method's, or label; one or several."""
    several = value if isinstance(value, list | tuple) else [value]
    for one in several:
        known = isinstance(one, str) and one.partition(".")[0] in (*SECTIONS, "label")
        if not known or not all(part.strip() for part in str(one).split(".")):
            allowed = "keys of the method such as algorithm.name, policy, or label"
            raise ValueError(refusal(one, allowed, [*SECTIONS, "label"]))
    return tuple(map(str, several))


def grid(value: object) -> dict[str, tuple[Any, ...]]:
    """The values of each dotted key."""
    found: dict[str, tuple[Any, ...]] = {}
    for key, values in settings(value).items():
        try:
            found[key] = expanded(values)
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from None
    return found


def entries(value: object) -> tuple[dict[str, Any], ...]:
    """The cases of a `list`, each a mapping of dotted keys with perhaps a label."""
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(refusal(value, "a list of mappings, as in [{label: x, policy: all}, ...]"))
    found = []
    for entry in value:
        label = entry.get("label") if isinstance(entry, Mapping) else None
        if label is not None and not (isinstance(label, str) and label.strip()):
            raise ValueError(f"label: {refusal(label, 'text')}")
        rest = dict(entry) if isinstance(entry, Mapping) else entry
        if isinstance(rest, dict):
            rest.pop("label", None)
        found.append({**({"label": label} if label else {}), **settings(rest)})
    return tuple(found)


def laws(value: object) -> dict[str, dict[str, Any]]:
    """The law of each dotted key, {name: terms}."""
    found = {}
    for key, law in settings(value).items():
        allowed = "{uniform: [a, b]}, {log_uniform: [a, b]}, {integer: [a, b]}, {choice: [...]}"
        if not isinstance(law, Mapping) or len(law) != 1 or next(iter(law)) not in LAWS:
            raise ValueError(f"{key}: {refusal(law, allowed)}")
        name, terms = next(iter(law.items()))
        try:
            found[key] = {name: list(expanded(terms)) if name == "choice" else ends(name, terms)}
        except ValueError as error:
            raise ValueError(f"{key}.{name}: {error}") from None
    return found


def ends(name: str, value: object) -> list[float]:
    """The two ends of a law; ValueError for a range that is none, or upside down."""
    least = 0.0 if name == "log_uniform" else -math.inf
    wanted = "[a, b] with a < b" + (", both > 0" if name == "log_uniform" else "")
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError(refusal(value, wanted))
    low, high = (finite(one) for one in value)
    whole = name != "integer" or (low.is_integer() and high.is_integer())
    if not least < low < high or not whole:
        raise ValueError(refusal(list(value), wanted + (" whole" if name == "integer" else "")))
    if not math.isfinite(high / low if name == "log_uniform" else high - low):
        within = "of a ratio" if name == "log_uniform" else "of a difference"
        raise ValueError(refusal(list(value), f"{wanted}, {within} within floating point"))
    return [int(low), int(high)] if name == "integer" else [low, high]


def targets(value: object) -> dict[str, tuple[float, ...]]:
    """The values of each metric, one or a list of them."""
    if not isinstance(value, Mapping):
        raise ValueError(refusal(value, "a mapping such as {accuracy: 0.93, error: [1e-2, 1e-3]}"))
    for name in value:
        if name not in METRICS:
            raise ValueError(refusal(name, ", ".join(METRICS), METRICS))
    several = {name: one if isinstance(one, list | tuple) else [one] for name, one in value.items()}
    return {name: tuple(map(target, ones)) for name, ones in several.items()}
