"""Runs that were deployed: what can be done with a simulation and not with real seconds."""

from collections.abc import Mapping
from typing import Any

from desim.errors import InputError

SIMULATE = "desim run with its scenario.yaml simulates it"
KEPT = "kept by the agents"  # what the manifest says of states that never left their processes
TEST = (
    "infinite: this deployment is a test: agents' states before noise went to the coordinator and "
    "are in the run; with a section privacy and its noise_seed: os they stay with the agents"
)
TOLD = (
    "infinite: in this deployment, of an older version, agents' states before noise went to the "
    "coordinator and are in the run"
)


def real(manifest: Mapping[str, Any]) -> bool:
    """Whether a run was deployed: its seconds are those of a clock."""
    return (manifest.get("clock") or {}).get("kind") == "real"


def unrepeatable(manifest: Mapping[str, Any]) -> bool:
    """Whether a run's noise came from the operating system."""
    return (manifest.get("privacy") or {}).get("noise") == "os"


def exposed(manifest: Mapping[str, Any]) -> str:
    """Why no epsilon of a deployed run is finite; empty where agents kept what has no noise."""
    if not real(manifest) or (manifest.get("privacy") or {}).get("states") == KEPT:
        return ""
    return TOLD if unrepeatable(manifest) else TEST


def require_virtual(manifest: Mapping[str, Any], what: str) -> None:
    """InputError for a deployed run, of which `what` is impossible."""
    if not real(manifest):
        return
    text = f"{manifest['name']}: was deployed, and real seconds do not come again: {what}"
    if unrepeatable(manifest):
        text += "; nor does its noise, which the operating system drew"
    raise InputError(f"{text}; {SIMULATE}")
