"""Runs that were deployed: what can be done with a simulation and not with real seconds."""

from collections.abc import Mapping
from typing import Any

from desim.errors import InputError

SIMULATE = "desim run with its scenario.yaml simulates it"


def require_virtual(manifest: Mapping[str, Any], what: str) -> None:
    """InputError for a deployed run, of which `what` is impossible."""
    if (manifest.get("clock") or {}).get("kind") != "real":
        return
    text = f"{manifest['name']}: was deployed, and real seconds do not come again: {what}"
    if (manifest.get("privacy") or {}).get("noise") == "os":
        text += "; nor does its noise, which the operating system drew"
    raise InputError(f"{text}; {SIMULATE}")
