"""What came of many worlds in files: all tables as JSON, the worlds as CSV."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from desim.runs.output import output

if TYPE_CHECKING:
    import pandas as pd


ENDINGS = (".json", ".csv")


def write(found: Any, path: Path) -> None:
    """Write `path`, .json or .csv; infinite numbers are null there, and inf here."""
    with output(path, [path.suffix.lower()]) as partial:
        if path.suffix.lower() == ".csv":
            found.worlds.to_csv(partial, index=False)
        else:
            partial.write_text(json.dumps(plain(found), indent=1, allow_nan=False) + "\n", "utf-8")


def plain(found: Any) -> dict[str, Any]:
    """All of it as numbers, texts, lists and mappings."""
    change = found.change
    return {
        "target": {found.target[0]: found.target[1]},
        "worlds": len(found.worlds),
        "seed": found.seed,
        "vary": {name: str(law) for name, law in found.laws.items()},
        "methods": list(found.methods),
        "order": found.order,
        "share": found.share,
        "rivals": list(found.rivals),
        **{name: _rows(getattr(found, name)) for name in ("first", "orders", "pairs", "indices")},
        "change": None if change is None else {
            "factors": dict(change.factors), "led": change.led, "by": change.by,
            "size": change.size, "within": change.within,
            "seconds": [_number(one) for one in change.seconds],
        },
        "notes": found.notes,
    }  # fmt: skip


def _rows(table: "pd.DataFrame") -> list[dict[str, Any]]:
    return [
        {str(name): _number(one) for name, one in row.items()} for row in table.to_dict("records")
    ]


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
