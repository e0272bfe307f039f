"""The section of a report about what agents learn of each other, where it is found in seconds."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from desim.amounts import epsilon
from desim.arrays import Array
from desim.deployments.fidelity.clock_errors import deployed
from desim.interface.pair_words import PAIR_HEADS, by_links, largest, resting
from desim.interface.plots.learnt import ENDLESS, WRITTEN, field_of, scale_of, tint
from desim.interface.reports.readable import Reading
from desim.tabulated import Table

WORK = 1e7  # messages that arrived times inputs and noises, of all runs: some seconds
WALL = 5.0  # s that a run may have taken, which is played twice more
NEAR = 5  # links up to which pairs are in a table that is not folded
LATER = (
    "To find this takes more than a few seconds here: desim privacy {} --pairs, or desim plot {} "
    "--kind pairs."
)
PICTURE = "The epsilon of each agent (row) towards each observer (column)."


@dataclass(frozen=True)
class Mutual:
    """What is said of a run; a table and a figure, where the pairs are known."""

    label: str
    said: str
    facts: Sequence[tuple[str, str]] = ()
    table: Table | None = None
    figure: "Picture | None" = None
    about: str = PICTURE


def mutual(found: Sequence[Reading]) -> list[Mutual]:
    """A part for each run of a method that is linear, and has noise; or why it has none."""
    parts, left = [], WORK
    for one in found:
        if one.spent is None or not _linear(one):
            continue
        counts = one.stored("counts", dict) or {}
        work = float(counts.get("deliver", 0)) * 2.0 * float(counts.get("compute", 0))
        took = float(one.run.manifest.get("wall_seconds", 0.0))
        if work > left or took > WALL + float(one.run.manifest.get("compile_seconds", 0.0)):
            where = one.run.directory or "RUN"
            parts.append(Mutual(one.label, LATER.format(where, where)))
            continue
        left -= work
        part = one.tried("what agents learn of each other", partial(_part, one))
        parts += [] if part is None else [part]
    return parts


def _linear(one: Reading) -> bool:
    """Whether the method says so; a deployed run is not replayed."""
    from desim.scenario import registry

    name = (one.written.get("algorithm") or {}).get("name")
    method = one.tried("method", lambda: registry.get(str(name))) if name else None
    return method is not None and bool(vars(method).get("linear")) and not deployed(one.run)


def _part(one: Reading) -> Mutual:
    table = one.run.pairwise()
    said = f"{largest(table)[:1].upper()}{largest(table)[1:]}."
    if "reason" in table.attrs or not len(table):
        return Mutual(one.label, said, resting(table))
    rows, title = by_links(table), "By how many links lie between"
    more = [Table("Further away", PAIR_HEADS, rows[NEAR:])] if len(rows) > NEAR + 1 else []
    words = Table(title, PAIR_HEADS, rows[:NEAR] if more else rows, more=more)
    return Mutual(one.label, said, resting(table), words, picture(field_of(table)))


# The picture, in units of which its height has 108: a field of 90, numbers around, colours beside.
LEFT, TOP, SIDE, BESIDE = 10.0, 8.0, 90.0, 104.0
STEPS = 5  # colours that are explained
ZERO = "#FFFFFF"


@dataclass(frozen=True)
class Picture:
    """fields: x, y, width, height, colour ("" of an agent by itself), what it is; frames.

    words: x, y, anchor, class, size, text.
    """

    fields: Sequence[tuple[float, float, float, float, str, str]]
    frames: Sequence[tuple[float, float, float, float]]
    words: Sequence[tuple[float, float, str, str, float, str]]


def picture(field: Array) -> Picture:
    """Epsilons (agents, observers), nan of an agent by itself, as colours; few as numbers, too."""
    n, side = len(field), SIDE / len(field)
    known = field[np.isfinite(field) & (field > 0.0)]
    scale = scale_of(known)

    def colour(value: float) -> str:
        if np.isnan(value):
            return ""
        if value == 0.0 or np.isinf(value):
            return ENDLESS if value else ZERO
        return tint(scale, value)

    fields, words = [], []
    for (agent, observer), value in np.ndenumerate(field):
        x, y = round(LEFT + observer * side, 3), round(TOP + agent * side, 3)
        about = f"epsilon {epsilon(value)} of agent {agent}, observer {observer}"
        about = about if agent != observer else f"agent {agent}"
        fields.append((x, y, round(side, 3), round(side, 3), colour(value), about))
        if n <= WRITTEN and agent != observer:
            light = "light" if np.isinf(value) or (value > 0.0 and scale(value) >= 0.5) else "dark"
            text = f"{value:.3g}" if np.isfinite(value) else "inf"
            words.append((x + side / 2, y + side / 2, "middle", light, 3.0, text))
    for k in range(0, n, -(-n // 10)):
        at = (k + 0.5) * side
        words.append((LEFT + at, TOP + SIDE + 3.0, "middle", "", 3.0, str(k)))
        words.append((LEFT - 1.5, TOP + at, "end", "", 3.0, str(k)))
    words.append((LEFT + SIDE / 2, TOP + SIDE + 7.5, "middle", "", 3.4, "observer"))
    words.append((0.0, TOP - 4.0, "start", "", 3.4, "agent"))
    words.append((BESIDE, TOP - 4.0, "start", "", 3.4, "epsilon"))
    steps = [*scale.inverse(np.linspace(1.0, 0.0, STEPS))] if known.size else []
    rows = [(colour(float(one)), f"{one:.3g}") for one in steps if one > 0.0]
    if steps and known.min() < steps[-1]:
        rows[-1] = rows[-1][0], f"≤ {rows[-1][1]}"
    rows += [(ENDLESS, "infinite")] * bool(np.isinf(field).any())
    rows += [(ZERO, "0")] * bool((field == 0.0).any())
    frames = [(LEFT, TOP, SIDE, SIDE)]
    for row, (fill, text) in enumerate([*rows, ("", "itself")]):
        y = TOP + 6.0 * row
        fields.append((BESIDE, y, 4.0, 4.0, fill, text))
        frames.append((BESIDE, y, 4.0, 4.0))
        words.append((BESIDE + 5.5, y + 2.0, "start", "", 3.0, text))
    return Picture(fields, frames, words)
