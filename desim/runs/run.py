"""A run as its user sees it: tables, arrays and manifest, read when they are first asked for.

Here it is also opened, by the path of its directory.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from desim.agent_names import NETWORK
from desim.columns import Columns, Words, gathered
from desim.errors import InputError, refusal, spelling
from desim.log.column_meanings import described
from desim.privacy.accounting.accountants import Account, account
from desim.privacy.accounting.prices import OF_SUMS
from desim.privacy.accounting.views import read_view
from desim.privacy.correlated.charged import at_worst
from desim.runs.allowance import allowed, bounded
from desim.runs.directory import SCENARIO, busy, own_scenario, read_manifest, written_by
from desim.runs.premises import Stated, declared, names, real, stated, trusted, void
from desim.runs.store import Checkpoint, Directory, Store, checkpoints_of
from desim.scenario import own

if TYPE_CHECKING:
    import pandas as pd

    from desim.columns import Pieces
    from desim.interface.plots.of_run import Figures
    from desim.scenario.schema import Scenario


RELEASED = "time agent release mechanism sensitivity scale sampling seen_by delivered".split()
HEARD = ["kind", "agent", "peer", "release"]
TERMS = ("view", "unit", "relation", "delta", "method", "assumptions", "flags")


class Run:
    """One scenario played.

    manifest: dict with status (done, stopped, failed, running, or interrupted for a run that was
    killed), reason, engine and why, time s, rounds, counts, hashes and versions; directory: Path or
    None.
    """

    def __init__(
        self,
        manifest: dict[str, Any],
        store: Store,
        directory: Path | None = None,
        scenario: "Scenario | None" = None,
    ) -> None:
        self.manifest = manifest
        self.directory = directory
        self.store = store
        self._scenario = scenario

    def __repr__(self) -> str:
        where = f" in {self.directory}" if self.directory else ""
        ended = self.manifest if "time" in self.manifest else None
        until = f", {ended['rounds']} rounds in {ended['time']:.4g} s" if ended else ""
        return f"<Run {self.name}{where}: {self.status}{until}>"

    def _repr_html_(self) -> str:
        from desim.runs.reading.facts import facts
        from desim.tabulated import card

        return card(f"{self.name}: {self.status}", facts(self, quick=True))

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return str(self.manifest["name"])

    @property
    def status(self) -> str:
        """Whether the run is done, stopped, failed or interrupted."""
        return str(self.manifest["status"])

    @property
    def scenario(self) -> "Scenario":
        """The resolved scenario that was played."""
        if self._scenario is None:
            from desim.scenario.load import load

            if self.directory is None:
                raise InputError("this run holds no scenario")
            try:
                self._scenario = load(own_scenario(self.directory, self.manifest))
            except InputError as error:
                stored = written_by(self.manifest)
                raise InputError(f"{stored}: {error}" if stored else str(error)) from None
        return self._scenario

    @property
    def listeners(self) -> dict[str, dict[str, Any]]:
        """What each listener had to say when the run was over, by its name."""
        return dict(self.manifest.get("listeners", {}))

    @cached_property
    def events(self) -> "pd.DataFrame":
        """Columns time s, seq, kind, agent, peer, round, bytes, seconds, value, release."""
        return self.store.table("events")

    @cached_property
    def metrics(self) -> "pd.DataFrame":
        """Columns time s, round, metric, agent (-1 is the whole network), value."""
        return self.store.table("metrics")

    @cached_property
    def releases(self) -> "pd.DataFrame":
        """One row per transmitted value that was computed from private data."""
        return self.store.table("releases")

    @cached_property
    def state(self) -> dict[str, NDArray[Any]]:
        """Final arrays by name."""
        return self.store.arrays("state")

    @cached_property
    def iterates(self) -> NDArray[np.float64] | None:
        """Models (rounds + 1, agents, dim) before noise; None unless observe.iterates is true."""
        return self.store.arrays("iterates").get("iterates")

    @cached_property
    def model(self) -> NDArray[np.float64] | None:
        """The coordinator's models (rounds + 1, dim); None where there is none."""
        return self.store.arrays("model").get("model")

    @cached_property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """Models where a metric first met a target of observe.checkpoints, by time."""
        return checkpoints_of(self.store.arrays("checkpoints"))

    @property
    def known(self) -> "Scenario | None":
        """The scenario; None for a run in memory that was not told it."""
        known = self._scenario is not None or self.directory is not None
        return self.scenario if known else None

    @cached_property
    def written(self) -> dict[str, Any]:
        """The resolved scenario as plain data, unchecked; empty where it is not known."""
        from desim.scenario.tree import plain

        if self._scenario is not None:
            return self._scenario.written()
        with suppress(InputError, OSError, ValueError):
            if self.directory is not None:
                return plain(own_scenario(self.directory, self.manifest).read_text("utf-8"))
        return {}

    def _written(self, name: str, default: Any) -> Any:
        """What the resolved scenario has there, as plain data; Foreign where it has changed since.

        No plug-in is needed for it, which may be gone.
        """
        if self.directory is not None:
            own_scenario(self.directory, self.manifest)
        return self.written.get(name) or default

    @property
    def level(self) -> str:
        """Which events the log keeps: all, messages or rounds; all where that is not known."""
        return str(self.written.get("log", "all"))

    @property
    def alike(self) -> str | None:
        """The resolved scenario with seed 0; None where the run does not know it."""
        from desim.scenario.load import resolved_yaml, seeded

        if self.directory is not None and (self.directory / SCENARIO).is_file():
            return seeded(own_scenario(self.directory, self.manifest).read_text("utf-8"), 0)
        return None if self._scenario is None else seeded(resolved_yaml(self._scenario), 0)

    @property
    def algorithm(self) -> str:
        """Name of the algorithm; "" where the run does not know its scenario any more."""
        try:
            return str(self.scenario.algorithm.name)
        except InputError:
            return ""

    @property
    def budget(self) -> float | None:
        """Epsilon that no agent exceeds, to an eavesdropper, if the scenario bounds it."""
        found: float | None = self._written("privacy", {}).get("budget")
        return found

    def curve(self, metric: str) -> "pd.DataFrame":
        """Network rows of one metric, columns time s, round, value; InputError if not recorded."""
        rows = self.metrics
        found = rows[(rows["metric"] == metric) & (rows["agent"] == NETWORK)]
        if found.empty:
            recorded = sorted(rows.loc[rows["agent"] == NETWORK, "metric"].unique())
            raise InputError(
                f"metric {metric!r} is not in run {self.name}; recorded: "
                f"{', '.join(recorded) or 'none'}{spelling(metric, recorded)}"
            )
        return described(found[["time", "round", "value"]].reset_index(drop=True), "curve")

    @property
    def stops(self) -> tuple[tuple[str, float], ...]:
        """Targets (metric, value) that end the run, as far as it knows its scenario."""
        return tuple(self._written("stop", {}).get("metric", {}).items())

    @property
    def observed(self) -> tuple[str, ...]:
        """Metrics that the scenario asks for, as far as the run knows its scenario."""
        return tuple(self._written("observe", {}).get("metrics", ()))

    def require(self, what: str, *kinds: str) -> None:
        """Raise InputError where the log leaves out events of these kinds, which `what` needs."""
        from desim.log.event_log import levels_with

        level, allowed = self._written("log", "all"), levels_with(kinds)
        if level not in allowed:
            raise InputError(
                f"{what}: needs {' and '.join(kinds)} events, which run {self.name} leaves out "
                f"(log: {level}); allowed: a run with log: {' or '.join(allowed)}"
            )

    def delivered(self) -> "pd.DataFrame":
        """Columns time s and bytes of every message that arrived, in order of time.

        InputError where the log leaves messages out.
        """
        from desim.numerics.later import pd
        from desim.runs.reading.traffic import ARRIVED

        log = self._log("bytes", ARRIVED, "deliver")
        came = gathered(log, lambda rows: rows["kind"].equal("deliver"))
        return described(
            pd.DataFrame({name: came[name] for name in ("time", "bytes")}), "delivered"
        )

    def _log(self, what: str, columns: list[str], *kinds: str) -> "Pieces":
        """The log piece by piece, for `what`, which needs these kinds: see `require`."""
        self.require(what, *kinds)
        return self.store.pieces("events", columns)

    def scan(self, table: str = "events") -> Any:
        """Table events, metrics or releases as a pyarrow.dataset.Dataset, of which nothing is read.

        For whoever has more rows than memory; DuckDB and Polars read it, too.
        """
        if table not in ("events", "metrics", "releases"):
            raise InputError(f"scan: {refusal(table, 'events, metrics or releases')}")
        return self.store.dataset(table)

    def time_to(self, metric: str, value: float, stays: bool = False) -> float:
        """Virtual time s at which `metric` is first <= value (accuracy: >= value); inf if never.

        stays: from which on it is so to the end of the run, as far as it was measured.
        """
        from desim.problem.targets import time_met

        if metric in self.observed and not (self.metrics["metric"] == metric).any():
            return float("inf")  # the run ended before it was measured at all
        return time_met(self.curve(metric), metric, value, stays)

    def account(
        self,
        delta: float | None = None,
        view: str | None = None,
        relation: str | None = None,
        amplification: bool = True,
    ) -> Account:
        """What the run's releases cost; terms that are None are those of the scenario's `privacy`.

        Without such a section: delta 1e-5, view eavesdropper, relation replace-one. See
        `desim.privacy.accounting.accountants.account`; InputError for terms that have no meaning.
        """
        # In a deployment batches are known: who holds the scenario can draw them. Where data decide
        # how much is released, final epsilons are what holds before the run; infinite where more
        # was seen than releases, or these are not what is charged.
        if self.directory is not None:
            own_scenario(self.directory, self.manifest)
        asked = None in (delta, view, relation)  # else a run without a scenario is accounted for
        terms = stated(self) if asked else Stated()
        seen, relation = view or terms.view, relation or terms.relation
        require_known(self, relation)
        asked_for: dict[str, Any] = {
            "rows": self.manifest.get("rows"), "delta": terms.delta if delta is None else delta,
            "relation": relation, "amplification": amplification and not real(self.manifest),
        }  # fmt: skip
        released = self.store.pieces("releases", [*RELEASED, *["round"] * trusted(self)])
        found = account(released, view=seen, events=arrivals(self, seen), **asked_for)
        private = found.worst > 0.0 or bool(self.manifest.get("privacy", {}).get("terms"))
        if private and (might := allowed(self)) is not None:
            whole = seen if trusted(self) else "eavesdropper"
            found = bounded(self, found, might, partial(account, view=whole, **asked_for))
        else:
            known = self.manifest.get("privacy", {}).get("contributions")
            found = replace(found, flags=(*found.flags, *at_worst(known, found)))
        found = replace(found, flags=(*found.flags, *doubts(self)))
        return found.voided(why) if (why := void(self)) else found

    def epsilon(
        self, delta: float | None = None, view: str | None = None, relation: str | None = None
    ) -> "pd.DataFrame":
        """Columns time s, agent, epsilon, cumulative: the last row of an agent is final.

        `.attrs` says what they mean: view, unit, relation, delta, method, assumptions, flags, and
        of the agent that spends most its `risk`. Terms are those of `account`.
        """
        from desim.privacy.accounting.risk import risk

        account = self.account(delta, view, relation)
        curve = described(account.curve.copy(), "epsilon")
        curve.attrs |= {name: getattr(account, name) for name in TERMS} | {"risk": risk(account)}
        return curve

    def pairwise(
        self, delta: float | None = None, relation: str | None = None,
        observers: "Iterable[Any] | None" = None, over_time: bool = False,
    ) -> "pd.DataFrame":  # fmt: skip
        """Columns agent, observer, mu, epsilon, local, distance: what observers learnt of agents.

        epsilon: of the messages that the observer received in this run, and what it knows itself;
        local: of all that the agent released, whoever sees it, in all of the run. observers:
        agents, or tuples of some that put together what they have; default: each agent alone.
        over_time: with column time s, and a row for each time at which a mu is larger than before,
        of at most 50 times a view, evenly among those of its messages; the last row of a pair is
        the only one without it. Terms that are None are those of the scenario's `privacy`.

        For methods of a graph that are linear in gradients and Gaussian noise, Dong, Roth and Su
        2022, Def. 2.1, on the method's own program played with symbols; of others epsilon is what
        the agent spends (view eavesdropper), and `.attrs["reason"]` says why. What it means is in
        `.attrs`: delta, relation, method, assumptions. InputError for a deployed run, agents that
        are none, or terms that have no meaning.
        """
        from desim.runs.pairwise import pairwise

        require_known(self, relation or stated(self).relation)
        return described(pairwise(self, delta, relation, observers, over_time), "pairwise")

    def critical_path(self, round: int | None = None) -> "pd.DataFrame":
        """What the run, or a round, could not have been faster than: see `reading.critical`.

        Columns round, begin s, end s, seconds, what, source, target, missing.
        """
        from desim.runs.reading.critical import NEEDED, critical_path
        from desim.runs.reading.waits import missing

        if "edges" in self.manifest:
            text = "found a tree, of which nobody follows messages through edges yet"
            raise InputError(f"network.topology: {text}; allowed: star, or a graph")
        log = self._log("critical path", NEEDED, "compute", "deliver", "aggregate")
        table, absent = critical_path(log, round), dict(missing(self, log))
        if round is not None and table.empty:
            last = int(self.manifest.get("rounds", 0))
            raise InputError(f"round: {refusal(round, f'one that was done, 1 to {last}')}")
        deadline = (table["what"] == "deadline") & (table["target"] == NETWORK)
        table["missing"] = table["end"].map(lambda end: absent.get(end, "")).where(deadline, "")
        return described(table, "critical_path")

    def waits(self) -> "pd.DataFrame":
        """Columns time s, round, agent, waited s, closer, missing: whom everybody waited for."""
        from desim.runs.reading.waits import COLUMNS, missing, waits

        log = self._log("waits", COLUMNS, "deliver", "aggregate")
        table, absent = waits(log), missing(self, log)
        table["missing"] = ""
        if absent:
            table.loc[table["agent"] == NETWORK, "missing"] = [names for _, names in absent]
        return described(table, "waits")

    def utilisation(self) -> "pd.DataFrame":
        """Columns agent, computing, aborted, away, idle, sending in s, utilisation."""
        from desim.runs.reading.traffic import SPENT, utilisation

        log, end = self._log("utilisation", SPENT, "compute", "send"), self.manifest.get("time")
        table = utilisation(log, None if end is None else float(end))
        computing = table["agent"] < self.manifest.get("edges", np.inf)  # edges of a tree do not
        return described(table[computing], "utilisation")

    def energy(self, until: "float | Mapping[str, float] | None" = None) -> "pd.DataFrame":
        """Columns agent, cause, joules: what devices took, by compute.power and network.power.

        until: a time s up to the end, or {metric: target}, when it was first met; default: the end.
        Joules are infinite until a target that was never met. Causes are those of
        `reading.energy`; all together are what the run took. InputError where the scenario has no
        power, or the log leaves out what it needs.
        """
        from desim.runs.reading.energy import spent

        return described(spent(self, until), "energy")

    def clients(self) -> "pd.DataFrame":
        """Columns round, time s, agent, rows, accuracy, loss: each client on its own test rows.

        Of scenarios with problem.data.test: own, whenever client_accuracy or client_loss of
        observe.metrics was measured; nan for the one that was not. A client's model is the
        coordinator's, or on a graph its own. InputError where neither was measured.
        """
        from desim.runs.reading.by_client import by_client

        return described(by_client(self), "clients")

    def fairness(self) -> "pd.DataFrame":
        """How far apart clients' accuracies were over time: see `reading.by_client`.

        Columns time s, round, mean, weighted (by test rows), min, worst_decile, best_decile, max,
        spread (the standard deviation over clients). InputError where they were not measured.
        """
        from desim.runs.reading.by_client import fairness

        return described(fairness(self), "fairness")

    def joules_by(self, times: NDArray[np.float64]) -> NDArray[np.float64]:
        """Joules (n,) that all devices had taken by each of times (n,) s; see `energy`."""
        from desim.runs.reading.charge import joules_by

        return joules_by(self, times)

    def charge(self) -> "pd.DataFrame":
        """Columns time s, agent, charge J, share, event: what batteries hold, by `battery`.

        A row whenever what an agent takes or is charged with changes; between two of them its
        charge is on a line. event: empty, back, or nothing. InputError where the scenario has no
        batteries, or the log leaves out what empties them.
        """
        from desim.runs.reading.charge import charge

        return described(charge(self), "charge")

    @property
    def exhaustion(self) -> str:
        """Whose batteries were empty, and what is left, in words; empty where there are none."""
        if self.written.get("battery", "none") == "none":
            return ""
        from desim.runs.reading.charge import exhaustion

        return exhaustion(self)

    @property
    def powered(self) -> bool:
        """Whether its scenario has power, and its log what takes it, so that it has an energy."""
        from desim.runs.reading.energy import power_known

        return power_known(self)

    def links(self) -> "pd.DataFrame":
        """Messages, bytes and seconds by source and target; see `reading.traffic.links`."""
        from desim.runs.reading.traffic import CARRIED, links

        return described(links(self._log("links", CARRIED, "send", "deliver")), "links")

    def staleness(self) -> "pd.DataFrame":
        """How old what is used is, columns time s, agent, round, peer, heard, staleness, age s."""
        from desim.runs.reading.traffic import hearing, staleness, staleness_in_tree

        self.require("staleness", "activate", "deliver", "aggregate")
        edges, ways = self.manifest.get("edges"), hearing(self.scenario)
        if edges is not None:
            return described(staleness_in_tree(self.events, edges, ways["void"]), "staleness")
        return described(staleness(self.events, **ways), "staleness")

    def participation(self) -> "pd.DataFrame":
        """How often agents contribute, and how far apart: columns agent, contributions, gap."""
        from desim.runs.reading.traffic import participation

        used = participation(self.staleness(), len(self.manifest["rows"]))
        return described(used, "participation")

    @property
    def plot(self) -> "Figures":
        """Figures: `run.plot(x=, metric=, out=)` and `run.plot.timeline()`, see its methods."""
        from desim.interface.plots.of_run import Figures

        return Figures(self)


# What the releases of a run cost, read from its tables piece by piece.


def doubts(run: Run) -> Iterator[str]:
    """On whose word the run's epsilon rests, and that its files cannot be checked."""
    yield from declared(run)
    if doubt := run.store.unchecked:
        yield doubt


def with_coordinator(run: Run) -> bool:
    """Whether a coordinator receives releases."""
    pieces = run.store.pieces("releases", ["seen_by"])
    return any(rows["seen_by"].equal("coordinator").any() for rows in pieces)


def require_known(run: Run, relation: str) -> None:
    """InputError for a relation for which the sensitivities of the run's method are not known."""
    name = names(run)[0]
    if trusted(run):
        return
    if name in own.METHODS and relation in OF_SUMS and relation not in own.RELATIONS:
        from desim.scenario import registry  # of compiled methods, which takes a while

        known = registry.get(name).relations
        if relation not in known:
            allowed = f"{', '.join(known)}, with {name}"
            raise InputError(f"relation: {refusal(relation, allowed)}")


def arrivals(run: Run, view: str) -> Columns | None:
    """The events that a direct view needs: what arrived at its agent."""
    if not str(view).startswith("direct"):
        return None
    run.require(f"view {view}", "deliver")
    try:
        agents = read_view(view).agents
    except ValueError:
        return None  # told by who reads it next

    def arrived(log: Columns) -> Any:
        kind: Words = log["kind"]
        return kind.equal("deliver") & (log["agent"] == agents[0])

    return gathered(run.store.pieces("events", HEARD), arrived)


# Runs by the paths of their directories.

ALLOWED = "a run, or the path of its directory"
One = Run | str | Path
Given = One | Sequence[One] | Mapping[str, Sequence[One]]  # directories stand for what is in them


def as_run(run: One) -> Run:
    """A run, which is opened where its directory is given."""
    return run if is_run(run) else open_run(run)  # type: ignore[return-value,arg-type]


def is_run(one: Any) -> bool:
    """Whether this is a run, or what stands for one in a report."""
    return hasattr(one, "manifest")


def open_run(path: str | Path) -> Run:
    """The run stored in `path`, also one that failed or was killed; InputError if there is none."""
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"run: {refusal(path, ALLOWED)}")
    directory = Path(path)
    manifest = read_manifest(directory)
    manifest.pop("scenario", None)
    ended = manifest["status"] != "running"
    if not ended and busy(directory):
        manifest["reason"] = "a process plays it at this moment; its log ends at the last flush"
    elif not ended:
        manifest["status"] = "interrupted"
        manifest["reason"] = "the process ended before the run did; its log ends at the last flush"
        if not real(manifest):
            manifest["reason"] += "; desim resume goes on with it"
    return Run(manifest, Directory(directory, ended, manifest.get("files")), directory)
