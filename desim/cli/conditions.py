"""Network and devices of a simulation in words: a wrong unit is to be seen before the run."""

from collections.abc import Iterator, Sequence

import numpy as np

from desim.amounts import between, size
from desim.arrays import Array
from desim.cli.sizes import sizes
from desim.engine.opening import Opening, opening, speeds
from desim.engine.play import Simulation
from desim.engine.world import Settings
from desim.timeline.messages import Links

LONG, NARROW, SLOW = 5.0, 1e3, 0.1  # s, bit/s, 1/s: beyond these a unit may have been forgotten


@np.errstate(divide="ignore", invalid="ignore")  # what was drawn as 0 takes for ever
def told(simulation: Simulation) -> list[str]:
    """Lines: what the links and the devices are, and what the first exchange takes."""
    settings = simulation.settings
    pace = speeds(settings)
    lines = [*_links(settings), f"devices: {_pace(pace)}"]
    first = opening(simulation)
    lines += _first(first, settings) if first is not None else []
    return [*lines, *sizes(simulation)]


def _sides(settings: Settings) -> dict[str, Links]:
    sides = {"links": settings.links, "uplinks": settings.uplinks, "downlinks": settings.downlinks}
    return {name: links for name, links in sides.items() if links is not None and links.ends.size}


def _links(settings: Settings) -> Iterator[str]:
    words = {name: _link(links) for name, links in _sides(settings).items()}
    if len(words) > 1 and len({*words.values()}) == 1:
        words = {"links": next(iter(words.values()))}
    yield from (f"{name}: {text}" for name, text in words.items())


def _link(links: Links) -> str:
    """Latency, bandwidth and losses of links, as drawn for this run."""
    latency, rate = links.latency, _rates(links)
    parts = [between(latency, "s") if latency.max() > 0.0 else "no latency"]
    parts[0] += " (a bare number is in s)" if latency.max() >= LONG else ""
    finite = rate[np.isfinite(rate)]
    text = between(finite, "bit/s") if len(finite) else "sending takes no time"
    text += " on average" if links.plays.shape[1] else ""
    narrow = ((finite > 0.0) & (finite < NARROW)).any()
    parts.append(text + (" (a bare number is in bit/s)" if narrow else ""))
    kept = 1.0 - _lost(links.loss, links.bursts[1])
    kept *= 1.0 - _lost(links.onward[3:5], links.onward[6]) if len(links.onward) else 1.0
    lost = 1.0 - kept
    return ", ".join([*parts, *([f"{100.0 * lost:.3g} % of messages lost"] if lost else [])])


def _lost(loss: Sequence[float] | Array, share: float) -> float:
    """Share of attempts that are lost; loss: outside bursts and in them; share: of time in them."""
    return float(loss[0] + share * (loss[1] - loss[0]))


def _rates(links: Links) -> Array:
    """Bandwidth (links,) in bit/s; of a trace its mean."""
    if not links.plays.shape[1]:
        return np.asarray(links.wires[1])
    first, last = links.plays
    time, _, sent = links.samples
    return np.asarray((sent[last] - sent[first]) / (time[last] - time[first]))


def _pace(pace: Array) -> str:
    """How long agents of pace (agents,) 1/s take for a gradient of one row."""
    takes = 1.0 / pace
    if not takes.max() > 0.0:
        return "computing takes no time"
    hint = " (a bare speed is in 1/s)" if ((pace > 0.0) & (pace < SLOW)).any() else ""
    return f"a gradient of one row takes {_span(takes)}{hint}"


def _first(first: Opening, settings: Settings) -> Iterator[str]:
    """What the first exchange takes: of a coordinator all of it, else computing and sending."""
    if not len(first.who):
        return
    work = f"{_count(first.work)} gradients in {_span(first.seconds)}"
    if settings.uplinks is not None and settings.downlinks is not None:
        down, up = _messages(settings.downlinks, first.down), _messages(settings.uplinks, first.up)
        whole = down[first.who] + first.seconds + up[first.who]
        told = f"{size(first.down / 8)} down, {work}, {size(first.up / 8)} up"
        yield f"first exchange: {told}; in all {_span(whole)}"
        return
    bits = 64 * settings.problem.dim
    sent = "" if settings.links is None or not settings.links.ends.size else (
        f"; {size(bits / 8)} to a neighbour in {_span(_messages(settings.links, bits))}"
    )  # fmt: skip
    yield f"first computation: {work}{sent}"


def _span(seconds: Array) -> str:
    """The least and the largest of durations, some of which may have no end."""
    known = seconds[np.isfinite(seconds)]
    parts = [between(known, "s")] if len(known) else []
    return " or ".join([*parts, *(["without end"] if len(known) < len(seconds) else [])])


def _count(work: Array) -> str:
    low, high = f"{work.min():.6g}", f"{work.max():.6g}"
    return low if low == high else f"{low} to {high}"


def _messages(links: Links, bits: int) -> Array:
    """How long a message of that size takes on each link, in s."""
    return np.asarray(links.latency + bits / _rates(links))
