"""Which agent is which site, where `problem.partition.by` makes one agent for each value."""

from collections.abc import Mapping, Sequence
from typing import Any

LONGEST = 24  # letters of a site's name in labels
SHOWN = 12  # sites that a line names


def sites(manifest: Mapping[str, Any]) -> list[str]:
    """The sites' names in the order of the agents; [] where agents are no sites."""
    found = manifest.get("sites")
    return [str(one) for one in found] if isinstance(found, list) else []


def agent_named(manifest: Mapping[str, Any], who: int) -> str:
    """An agent, with its site if it is one: agent 2 (south)."""
    return f"agent {beside(who, sites(manifest))}"


def beside(who: int, names: Sequence[str]) -> str:
    """The same without the word; names: of all sites, none where agents are none."""
    return f"{who} ({_cut(names[who])})" if 0 <= who < len(names) else str(who)


def called(who: int) -> str:
    """An agent, or the coordinator, by number alone."""
    return "coordinator" if who < 0 else f"agent {who}"


def numbered(manifest: Mapping[str, Any], who: int) -> str:
    """The same as an axis has it: 2 south."""
    known = sites(manifest)
    return f"{who} {_cut(known[who])}" if 0 <= who < len(known) else str(who)


def listed(names: Sequence[str]) -> str:
    """All sites by agent: 0 east, 1 north, 2 south."""
    more = [f"... {len(names)} in all"] if len(names) > SHOWN else []
    return ", ".join([*(f"{i} {_cut(one)}" for i, one in enumerate(names[:SHOWN])), *more])


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST else name[: LONGEST - 3] + "..."
