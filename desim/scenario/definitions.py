"""What many keys take, quantities with units and laws of them, once in a JSON Schema."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from desim import units

ABOUT = ("description", "default", "examples", "title")  # of a key, and not of what it takes
QUANTITIES = {
    "Time": units.TIME, "Bandwidth": units.BANDWIDTH, "Rate": units.RATE, "Speed": units.SPEED,
    "Size": units.SIZE, "Watts": units.POWER, "JoulesPerByte": units.PER_BYTE,
    "Joules": units.ENERGY, "Share": units.SHARE,
}  # fmt: skip


def once(schema: dict[str, Any]) -> dict[str, Any]:
    """`schema` with its choices that occur more than once among its $defs."""
    bodies = Counter(_choices(schema))
    names: dict[str, str] = {}
    defs = dict(schema["$defs"])

    def placed(node: Any) -> Any:
        if isinstance(node, list):
            return [placed(one) for one in node]
        if not isinstance(node, dict):
            return node
        key = _choice(node)
        if not key or bodies[key] < 2:
            return {name: placed(one) for name, one in node.items()}
        if key not in names:
            names[key] = _named(key, {*defs})
            body = {name: one for name, one in node.items() if name not in ABOUT}
            defs[names[key]] = {}  # its place
            defs[names[key]] = {name: placed(one) for name, one in body.items()}
        about = {name: one for name, one in node.items() if name in ABOUT}
        return {"$ref": f"#/$defs/{names[key]}", **about}

    whole = {name: placed(one) for name, one in schema.items() if name != "$defs"}
    inner = {name: placed(one) for name, one in schema["$defs"].items()}
    return {"$defs": inner | {name: defs[name] for name in defs if name not in inner}, **whole}


def _choice(node: dict[str, Any]) -> str:
    """What a node allows, as text, where that is a choice among several; else nothing."""
    if "anyOf" not in node:
        return ""
    return json.dumps(
        {key: one for key, one in node.items() if key not in ABOUT},
        sort_keys=True,
        ensure_ascii=False,
    )


def _choices(node: Any) -> Iterator[str]:
    if isinstance(node, dict) and (key := _choice(node)):
        yield key
    for one in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _choices(one)


def _named(key: str, taken: set[str]) -> str:
    """A name for a choice, by the units of its quantities."""
    name = next((name for name, of in QUANTITIES.items() if f"({'|'.join(of)})?" in key), "Choice")
    name += "Law" if '"uniform"' in key else ""
    number = next(n for n in range(1, 1000) if _numbered(name, n) not in taken)
    return _numbered(name, number)


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}{number}"
