"""Which clock a run was told by, in a line: one of real time has hosts, an error, and links."""

from collections.abc import Mapping
from typing import Any


def clock(manifest: Mapping[str, Any]) -> str:
    """What a manifest says of a real clock; empty where time is virtual."""
    told = manifest.get("clock") or {}
    if told.get("kind") != "real":
        return ""
    hosts, error = int(told.get("hosts", 1)), float(told.get("error", 0.0))
    where = "one machine" if hosts == 1 else f"{hosts} hosts, aligned to {1e3 * error:.3g} ms"
    refused = int(told.get("refused", 0))
    more = f"; {refused} connection{'s' * (refused != 1)} refused" if refused else ""
    return f"real, on {where}; {_links(told.get('links') or {})}{more}"


def _links(links: Mapping[str, Any]) -> str:
    """What carried the messages."""
    text = str(links.get("kind", "links unknown"))
    if "lines" in links:
        text = f"{links['lines']} {text}"
    if "late" in links:
        text += f", packets at most {1e3 * float(links['late']):.3g} ms late"
    dropped = links.get("dropped", 0)
    return text + (f", {dropped} dropped by full queues" if dropped else "")
