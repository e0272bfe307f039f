"""A complete small scenario for each algorithm: a common frame, and what the page adds."""

import copy
from typing import Any

from analysis.docs.generate.keys import flow
from desim.methods.shared.declarations import Method
from desim.scenario import registry

CLASSES = {"source": "synthetic", "kind": "classification", "rows": 12, "dim": 4}
FRAME: dict[str, Any] = {
    "problem": {"agents": 6, "data": CLASSES, "loss": "logistic", "regularizer": {"l2": 0.5}},
    "algorithm": {},
    "network": {"link": {"latency": "20 ms", "bandwidth": "10 Mbit/s"}},
    "compute": {"speed": {"uniform": ["500 /s", "1500 /s"]}},
    "observe": {"metrics": ["error", "accuracy"]},
    "stop": {"rounds": 5},
}
PEOPLE = {
    "source": "csv",
    "file": "people.csv",
    "label": "hired",
    "protected": {"column": "group", "value": "b"},
}


def scenario_of(name: str, changes: dict[str, Any]) -> dict[str, Any]:
    """The scenario as a mapping."""
    method = registry.get(name)
    made = _framed(method)
    for section, keys in copy.deepcopy(changes).items():
        if not isinstance(keys, dict):
            made[section] = keys
            continue
        own = made.setdefault(section, {})
        data = keys.pop("data", {}) if section == "problem" else {}
        own |= keys
        if data.get("source") == "csv":
            own["data"] = dict(PEOPLE)
        else:
            own.setdefault("data", {}).update(data) if data else None
    made["observe"]["metrics"] = _metrics(method, made)
    return made


def _framed(method: type[Method]) -> dict[str, Any]:
    made = copy.deepcopy(FRAME)
    if method.kind == "graph":
        made["network"] = {"topology": {"regular": 3}, **made["network"]}
    if method.kind == "central":
        del made["problem"]["agents"], made["network"]
    if method.once:
        made["stop"] = {"rounds": 1}
    return made


def _metrics(method: type[Method], made: dict[str, Any]) -> list[str]:
    return ["loss"] if "protected" in made["problem"]["data"] or method.once else ["error", "loss"]


def scenario_text(name: str, changes: dict[str, Any]) -> str:
    """The scenario as a file."""
    lines = []
    for key, value in scenario_of(name, changes).items():
        if key in ("problem", "network"):
            lines += [f"{key}:", *(f"  {inner}: {flow(one)}" for inner, one in value.items())]
        else:
            lines.append(f"{key}: {flow(value)}")
    return "\n".join(lines) + "\n"
