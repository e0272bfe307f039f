"""What a run's machine measured of a step, in words: a number means nothing without its machine."""

from collections.abc import Mapping
from typing import Any


def measured_text(compute: Mapping[str, Any]) -> str:
    """Rate, rows of a step, spread and machine; empty where nothing was measured.

    compute: the section as a scenario has it written.
    """
    speed = compute.get("speed")
    found = speed.get("measured") if isinstance(speed, Mapping) else None
    if not isinstance(found, Mapping) or not found.get("rate"):
        return ""
    text = f"{found['rate']:.4g} gradients of one row in a second"
    text += f", in steps of {found['batch']} rows" if "batch" in found else ""
    if "spread" in found:
        text += f", spread {100.0 * found['spread']:.2g} % over {found.get('steps', 'some')} steps"
    return text + (f" ({found['machine']})" if "machine" in found else "")
