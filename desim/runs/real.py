"""Runs that were deployed: what can be done with a simulation and not with real seconds."""

from collections.abc import Mapping
from typing import Any

from desim.errors import InputError

SIMULATE = "desim run with its scenario.yaml simulates it"


def real(manifest: Mapping[str, Any]) -> bool:
    """Whether a run was deployed: its seconds are those of a clock."""
    return (manifest.get("clock") or {}).get("kind") == "real"


def unrepeatable(manifest: Mapping[str, Any]) -> bool:
    """Whether a run's noise came from the operating system."""
    return (manifest.get("privacy") or {}).get("noise") == "os"


def require_virtual(manifest: Mapping[str, Any], what: str) -> None:
    """InputError for a deployed run, of which `what` is impossible."""
    if not real(manifest):
        return
    text = f"{manifest['name']}: was deployed, and real seconds do not come again: {what}"
    if unrepeatable(manifest):
        text += "; nor does its noise, which the operating system drew"
    raise InputError(f"{text}; {SIMULATE}")
