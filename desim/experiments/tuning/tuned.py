"""What came of a tuner: tables of its candidates and runs, the best one, and what it is worth."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from desim.arrays import Array
from desim.experiments.studies.statistics import median, median_estimate, paired
from desim.experiments.studies.tables import runs_table
from desim.experiments.studies.work import Result
from desim.experiments.tuning.book import Book, latest, until
from desim.experiments.tuning.candidates import BEST, FRONT, OPEN, RACING, Candidate
from desim.experiments.tuning.charged import Price
from desim.experiments.tuning.found import Found
from desim.experiments.tuning.importance import importance
from desim.experiments.tuning.plan import Planned
from desim.numerics.later import pd
from desim.runs.reading.series import setting_text
from desim.scenario.load import resolved_yaml
from desim.scenario.schema import Scenario


class Tuned(Found):
    """The end of a search, or how far it came; see `desim.tune`, and `Found` for its tables."""

    def __repr__(self) -> str:
        return f"<Tuned {self.name}: {len(self.candidates)} candidates, {self.asked} runs>"

    def _repr_html_(self) -> str:
        from desim.experiments.tuning.words import lines
        from desim.tabulated import card

        return card(lines(self)[0], [("", text.strip()) for text in lines(self)[1:] if text])

    @property
    def tables(self) -> "dict[str, pd.DataFrame]":
        """The tables by name, as they are stored."""
        return {
            "candidates": self.candidates, "runs": self.runs, "fresh": self.fresh,
            "sensitivity": self.sensitivity,
        }  # fmt: skip

    @property
    def values(self) -> dict[str, Any]:
        """The values of the best candidate, of a front the first; empty where there is none."""
        return dict(self.best[0].values) if self.best else {}

    def yaml(self, place: int = 0) -> str:
        """The scenario of the best candidate, or of one of the front, as `desim run` takes it."""
        if len(self.best) <= place:
            return ""
        return resolved_yaml(self.released[place])

    def text(self) -> str:
        """All that there is to say, in lines."""
        from desim.experiments.tuning.words import lines

        return "\n".join(lines(self))


def tuned(
    planned: Planned, book: Book, candidates: Sequence[Candidate], complete: bool,
    price: Price | None,
) -> Tuned:  # fmt: skip
    """The result of a search whose runs are in the book."""
    tune, level = planned.tune, planned.study.compare.level
    seeds = {one.number: seeds_of(planned, one) for one in [*candidates, planned.base]}
    best = [one for one in candidates if one.status in (BEST, FRONT)]
    if len(tune.least) > 1:
        best.sort(key=lambda one: float(median(book.table([one], tune.seeds)[0, 0])))
    table = candidates_table(book, candidates, seeds, best[0] if best else None, level)
    goals = tune.least
    return Tuned(
        planned.study.name, book.path, complete, tune.target, goals, level, table,
        _runs(planned, book, candidates, seeds), _fresh(planned, book, best, level),
        importance(tune.vary, table, goals[0]), book.counts, book.asked, planned.size, tune.seeds,
        tuple(best), tuple(as_played(planned, one) for one in best), price, planned.asked.epsilon,
    )  # fmt: skip


def as_played(planned: Planned, one: Candidate) -> Scenario:
    """The candidate's scenario; charged, the run that was played of it, with its seed and end.

    Any other run of it would be one more release.
    """
    assert one.scenario is not None
    if planned.tune.charge is None:
        return one.scenario
    (seed,) = seeds_of(planned, one)
    return until(one.scenario, latest(planned.tune)).model_copy(update={"seed": seed})


def seeds_of(planned: Planned, one: Candidate) -> tuple[int, ...]:
    """The seeds that a candidate meets: all the same, unless the best one's release is charged."""
    if planned.tune.charge is not None:
        return (planned.tune.seeds[0] + max(one.number, 0),)
    return planned.tune.seeds


def candidates_table(
    book: Book, candidates: Sequence[Candidate], seeds: Mapping[int, tuple[int, ...]],
    best: Candidate | None, level: float,
) -> "pd.DataFrame":  # fmt: skip
    """The table `candidates` of Tuned."""
    rows = []
    for one in candidates:
        seen = tuple(book.played(one, seeds[one.number]))
        status = OPEN if one.status == RACING else one.status
        values = {key: _cell(value) for key, value in one.values.items()}
        row = {"candidate": one.number, "label": one.label, **values, "status": status,
               "seeds": len(seen), "decided": one.at}  # fmt: skip
        needed = book.table([one], seen)[:, 0] if seen else np.zeros((len(book.tune.least), 0))
        for kind, numbers in zip(book.tune.least, needed, strict=True):
            row |= {f"{kind}{end}": x for end, x in _estimate(numbers, level).items()}
            row |= {
                f"{kind} ratio{end}": x
                for end, x in _ratio(book, one, best, seen, kind, level).items()
            }
        rows.append({**row, "reason": one.reason})
    return pd.DataFrame(rows)


def _cell(value: Any) -> Any:
    """A value as a table holds it."""
    return setting_text(value) if isinstance(value, Mapping | list | tuple) else value


def _estimate(numbers: Array, level: float) -> dict[str, float]:
    found = median_estimate(numbers, level)
    return {"": found.value, " low": found.low, " high": found.high}


def _ratio(
    book: Book, one: Candidate, best: Candidate | None, seen: tuple[int, ...], kind: str,
    level: float,
) -> dict[str, float]:  # fmt: skip
    """The median ratio to the best over the seeds of both, and its interval."""
    nothing = {"": np.nan, " low": np.nan, " high": np.nan}
    if best is None or book.tune.charge is not None or not seen:
        return nothing
    place = book.tune.least.index(kind)
    mine, other = (book.table([who], seen)[place, 0] for who in (one, best))
    found = paired(mine, other, ratio=True, rising=False, level=level).estimate
    return {"": found.value, " low": found.low, " high": found.high} if found.n else nothing


def _runs(
    planned: Planned, book: Book, candidates: Sequence[Candidate],
    seeds: Mapping[int, tuple[int, ...]],
) -> "pd.DataFrame":  # fmt: skip
    """One row per run that was played, as in a study."""
    cases = []
    again = planned.tune.fresh_seeds
    for one in [*candidates, planned.base]:
        own = (*seeds[one.number], *again)
        seen = tuple(dict.fromkeys(book.played(one, own)))
        if seen and one.scenario is not None:
            cases.append(one.case(seen))
    keys = {place: key for place, key in book.keys.items() if key in book.results}
    results: dict[str, Result] = dict(book.results)
    return runs_table(cases, keys, results, book.goal)


def _fresh(planned: Planned, book: Book, best: Sequence[Candidate], level: float) -> "pd.DataFrame":
    """Medians on tuned and fresh seeds of the best and the base, and the ratio to the base."""
    rows = []
    again = planned.tune.fresh_seeds
    for one in [*best, planned.base]:
        seen = tuple(book.played(one, again))
        if not seen:
            continue
        both = tuple(seed for seed in seen if book.result(planned.base, seed) is not None)
        for place, kind in enumerate(planned.tune.least):
            numbers = book.table([one], seen)[place, 0]
            found = {f"fresh{end}": x for end, x in _estimate(numbers, level).items()}
            own = tuple(book.played(one, planned.tune.seeds))
            tuned_on = book.table([one], own)[place, 0] if own else np.zeros(0)
            mine, other = (book.table([who], both)[place, 0] for who in (one, planned.base))
            ratio = paired(mine, other, ratio=True, rising=False, level=level)
            rows.append({
                "candidate": one.number, "label": one.label or "base", "kind": kind,
                "tuned": _estimate(tuned_on, level)[""], "seeds": len(seen), **found,
                "to base": ratio.estimate.value, "to base low": ratio.estimate.low,
                "to base high": ratio.estimate.high, "better": ratio.wins, "worse": ratio.losses,
            })  # fmt: skip
    return pd.DataFrame(rows)
