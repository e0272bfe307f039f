"""Agents and sites in words: agent 2 (south), agents 1, 3 and 5."""

from collections.abc import Mapping, Sequence
from typing import Any

from desim.arrays import Int

NETWORK = -1  # of metrics, all agents together; of events, the coordinator
MAX_SITE_LETTERS = 24  # letters of a site's name in labels
MAX_SITES = 12  # sites that a line names


def sites(manifest: Mapping[str, Any]) -> list[str]:
    """The sites' names in the order of the agents; [] where agents are no sites."""
    found = manifest.get("sites")
    return [str(one) for one in found] if isinstance(found, list) else []


def edge_of(manifest: Mapping[str, Any], who: int) -> int | None:
    """Which edge of a tree that is, from 0 on, the ones that agents talk to first; None for none.

    Edges have the ids after those of agents.
    """
    first = manifest.get("edges")
    return who - first if isinstance(first, int) and who >= first else None


def agent_named(manifest: Mapping[str, Any], who: int) -> str:
    """An agent, with its site if it is one: agent 2 (south); or an edge of a tree: edge 1."""
    if (edge := edge_of(manifest, who)) is not None:
        return f"edge {edge}"
    return f"agent {beside(who, sites(manifest))}"


def beside(who: int, names: Sequence[str]) -> str:
    """The same without the word; names: of all sites, none where agents are none."""
    return f"{who} ({_cut(names[who])})" if 0 <= who < len(names) else str(who)


def called(who: int) -> str:
    """An agent, or the coordinator, by number alone."""
    return "coordinator" if who < 0 else f"agent {who}"


def numbered(manifest: Mapping[str, Any], who: int) -> str:
    """The same as an axis has it: 2 south."""
    if (edge := edge_of(manifest, who)) is not None:
        return f"edge {edge}"
    known = sites(manifest)
    return f"{who} {_cut(known[who])}" if 0 <= who < len(known) else str(who)


def listed(names: Sequence[str]) -> str:
    """All sites by agent: 0 east, 1 north, 2 south."""
    more = [f"... {len(names)} in all"] if len(names) > MAX_SITES else []
    return ", ".join([*(f"{i} {_cut(one)}" for i, one in enumerate(names[:MAX_SITES])), *more])


def _cut(name: str) -> str:
    return name if len(name) <= MAX_SITE_LETTERS else name[: MAX_SITE_LETTERS - 3] + "..."


NAMED = 8  # agents that a sentence names


def agents(who: Int, sites: Sequence[str] = ()) -> str:
    """Agents by number: agent 1; agents 1, 3 and 5; of more than NAMED the first ones.

    sites: their names, in the order of the agents, where agents are sites.
    """
    return f"agent{'s' if len(who) > 1 else ''} {numbers(who, sites)}"


def numbers(who: Int, sites: Sequence[str] = ()) -> str:
    """The same without the word."""
    words = [beside(int(one), sites) for one in who[:NAMED]]
    words += [f"{len(who) - NAMED} more"] if len(who) > NAMED else []
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
