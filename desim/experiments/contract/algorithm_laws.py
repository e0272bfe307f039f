"""The laws of an algorithm, in the order worth reading: of what it computes, reads and reveals."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from desim.arrays import Array, Int
from desim.engine.play import Simulation
from desim.errors import InputError
from desim.experiments.audit.neighbours import worst_pair
from desim.experiments.audit.pairs import completed, unobserved
from desim.experiments.audit.transcript_check import TranscriptCheck, transcript_check
from desim.experiments.contract.stage import (
    BrokenError,
    Finding,
    SkippedError,
    Stage,
    demand_same,
    findings,
)
from desim.experiments.contract.trust_laws import believed
from desim.log.parquet import Tables
from desim.network.timeline.record import is_beside
from desim.numerics import jit
from desim.numerics.plain import at_once
from desim.problem.kernels.gradients import recorded_batches
from desim.runs.recording import run as play
from desim.runs.replay import resume
from desim.runs.retime import ByValuesError, retime
from desim.runs.run import Run
from desim.scenario import registry
from desim.scenario.build import build
from desim.scenario.schema import Scenario
from desim.signals import Listener, Release

# What an algorithm reveals: all of it is in the ledger, and no more than it declares.
AGENTS = 8  # of a larger problem the first ones stand for all
FEW_ROUNDS = 3  # rounds in which the others are looked at
NONE = {"relation": "replace-one"}  # the terms of privacy without noise


def charges(stage: Stage) -> str:
    """Every message of an agent carries a release of the ledger, or nothing computed from data."""
    plain = _ledger(stage.run())
    try:
        noisy = stage.run(stage.noisy)
    except SkippedError:
        return f"{plain} releases, all in the ledger"
    table = noisy.releases
    if ((table["mechanism"] == "sparse-vector") & (table["scale"] == 0.0)).any():
        raise BrokenError(
            "who speaks is decided by a mask that may come from data: give where= an answer of "
            "us.above, or us.public(mask) if it follows from time, terms and releases"
        )
    table = table[~is_beside(table["release"])]  # what else replies say is no method's
    if not (table["scale"] > 0.0).all():
        raise BrokenError(
            "privacy.noise is given, but releases have none: give the noise's terms to us.release, "
            "or to hub.call as its charge, or declare noises = ()"
        )
    clipped = stage.noisy.problem.clip is not None
    if clipped and not np.isfinite(table["sensitivity"]).all():
        raise BrokenError("with problem.clip and noise some release has no finite sensitivity")
    untried = "" if clipped else "; no problem.clip, so that sensitivities may be infinite"
    return f"{plain} releases, {_ledger(noisy)} with noise, all in the ledger{untried}"


def _ledger(run: Run) -> int:
    releases, events = run.releases, run.events
    if not releases["release"].is_unique:
        raise BrokenError("two rows of the ledger are one release")
    known = set(releases["release"])
    if set(events[events["kind"] == "release"]["release"]) != known:
        raise BrokenError("the log and the ledger do not name the same releases")
    sent = events[(events["kind"] == "send") & (events["agent"] >= 0)]
    if not set(sent["release"]) - {-1} <= known:
        raise BrokenError("a message carries a release that the ledger does not have")
    return len(releases)


def silence(stage: Stage) -> str:
    """Noise of deviation 0 is no noise."""
    privacy = stage.noisy.privacy
    if privacy is None or privacy.noise is None or privacy.noise.sigma is None:
        raise SkippedError("its noise is not given by privacy.noise.sigma")
    clip = stage.noisy.problem.clip
    same = {} if clip is None else {"problem__clip": clip}
    still = stage.changed(privacy__noise={"sigma": 0.0}, **same)
    quiet, plain = stage.run(still), stage.run(stage.changed(privacy=NONE, **same))
    one, other = quiet.iterates, plain.iterates
    if one is None or other is None or one.tobytes() != other.tobytes():
        raise BrokenError("models with sigma = 0 are not those without privacy")
    return "sigma = 0 gives the models without privacy"


def sensitivity(stage: Stage) -> str:
    """With one record replaced, releases move by no more than is declared, and nothing else.

    The record is one of the agent whose releases cost most, then one of every other agent.
    """
    simulation = build(stage.noisy)
    worst = transcript_check(simulation)
    largest, agents = _largest(worst), min(simulation.problem.agents, AGENTS)
    for agent in range(agents):
        if agent != worst.agent:
            pair = worst_pair(unobserved(simulation, FEW_ROUNDS), agent, row=0)
            largest = max(largest, _largest(transcript_check(pair, FEW_ROUNDS)))
    return (
        f"on worst pairs that were searched, of {agents} agents, releases move by {largest:.0%} of "
        "what is declared"
    )


def _largest(checked: TranscriptCheck) -> float:
    """The largest share of what is declared; BrokenError where something moves by more."""
    found = checked.violations
    if not len(found):
        return checked.largest
    row, record = found.iloc[0], f"record {checked.row} of agent {checked.agent} replaced"
    if row.what == "traffic":
        raise BrokenError(
            f"{record}: {row.difference:g} rows of log or ledger differ: times, sizes, silences or "
            "costs depend on data"
        )
    if row.release < 0:
        raise BrokenError(
            f"{record}: its message in round {row['round']} moves by {row.difference:.4g}, but no "
            "release says so: was a job run without us.compute, or a value sent besides what "
            "us.release returned?"
        )
    raise BrokenError(
        f"{record}: {row.what} {row.release} in round {row['round']} moves by "
        f"{row.difference:.4g}, declared {row.declared:.4g}"
    )


PRIVACY_LAWS = (("charges", charges), ("silence", silence), ("sensitivity", sensitivity))


# Rows that jobs read by `gradient` and `batch_gradient` (no other way is seen), against the terms.
MARGIN = 1e-9  # relative, of shares of the rows
Read = tuple[Int, Int, int, Int]  # agents (n,), rounds (n,), step, how many rows (n,) of each


class Reads(Listener):
    """Compares, at each release, what the agent has read since its last one with its terms.

    sizes (agents,): how many rows each has; read: what has been read so far, which grows.
    """

    def __init__(self, rows: Int, read: list[Read]) -> None:
        self.sizes, self.read, self.looked = np.maximum(rows, 1), read, 0
        self.missed = np.ones(len(rows))  # chance of a row that no batch since had it
        self.whole = set[tuple[int, int]]()  # (round, agent) with a release of all rows
        self.wider: dict[tuple[int, int], tuple[float, float]] = {}  # chances: of a row, declared
        self.unread = 0  # releases that declare a batch, of which none was seen

    def releasing(self, batch: Release) -> Array:
        """Look at a batch of releases, which go out as they are."""
        who, round_, release = batch.who, batch.round, batch.release
        for agents, _, _, count in self.read[self.looked :]:
            agents, first = np.unique(agents, return_index=True)  # two points of one batch
            self.missed[agents] *= 1.0 - count[first] / self.sizes[agents]
        self.looked = len(self.read)
        declared = batch.terms.sampling[batch.rows]
        for r in np.flatnonzero(release >= 0):
            place, chance = (int(round_[r]), int(who[r])), 1.0 - self.missed[who[r]]
            if not declared[r] < 1.0:
                self.whole.add(place)
            elif chance > declared[r] * (1.0 + MARGIN):
                self.wider.setdefault(place, (float(chance), float(declared[r])))
            self.unread += bool(0.0 == chance < declared[r] < 1.0)
        self.missed[who[release >= 0]] = 1.0
        return batch.output

    def demand(self) -> None:
        """Raise BrokenError that names the first agent that read more than its terms declare."""
        for (k, i), (chance, declared) in sorted(self.wider.items()):
            if (k, i) not in self.whole:
                found = "all its rows are" if chance == 1.0 else f"{chance:.3g} of its rows are"
                raise BrokenError(
                    f"agent {i} releases in round {k} with sampling {declared:.3g}, but {found} "
                    "read since its last release: the batch that the account reckons with is not "
                    "the one that was drawn"
                )


def reads(simulation: Simulation) -> Reads:
    """All that jobs read in a play without metrics and budget; RunError where that fails."""
    one = unobserved(simulation)
    with recorded_batches() as read:
        found = Reads(one.problem.rows, read)
        settings = replace(one.settings, budget=None)
        completed(replace(one, settings=settings).play(Tables(), listeners=[found]))
    return found


# What an algorithm computes, the same in all engines, and all of its laws.
ENGINES = ("cohort", "compiled")


def algorithm(
    name: str, scenario: Scenario | None = None, overrides: Mapping[str, Any] | None = None
) -> Iterator[Finding]:
    """Check each law of the algorithm of that name, in turn, and what it says of itself.

    scenario: where it is tried, cut to 12 rounds; default: a small one on unequal links. overrides:
    dotted keys of it, such as parameters without a default. InputError where it cannot be tried.
    """
    method = registry.get(name)
    return findings((*LAWS, *believed(method)), Stage(method, scenario, overrides))


def declares(stage: Stage) -> str:
    """Every key of the parameters says what it is, and the program is there."""
    method = stage.method
    program = "coordinator" if method.kind_on("star") == "coordinator" else "agents"
    if not callable(getattr(method, program, None)):
        raise BrokenError(f"kind {method.kind}, but no function {program}")
    keys = method.Parameters.keys()
    silent = [key for key in keys if not method.Parameters.about(key).strip()]
    if silent:
        raise BrokenError(f"Parameters.{silent[0]} has no docstring")
    return f"kind {method.kind}; parameters {', '.join(keys) or 'none'}, each described"


def plays(stage: Stage) -> str:
    """It comes to its end with finite models, and reports them."""
    done = stage.run()
    if done.status != "done":
        raise BrokenError(f"ended {done.status}: {done.manifest['reason']}")
    models = done.iterates if done.iterates is not None else np.empty(0)
    if not np.isfinite(models).all():
        raise BrokenError("a model is not finite")
    if np.all(models == models[:1]):
        if (stage.scenario.stop.rounds or 0) == 1 and done.model is not None:
            raise SkippedError("it has one round, in which agents have what they were first sent")
        raise BrokenError("no model ever changes: is it reported, by us.report(x), or us.x = x?")
    loss = done.metrics[(done.metrics.metric == "loss") & (done.metrics.agent == -1)].value
    trend = f"; loss {loss.iloc[0]:.4g} to {loss.iloc[-1]:.4g}" if len(loss) else ""
    timed = (done.events["kind"] == "compute").any()
    idle = "" if timed else "; nothing takes time but messages: are jobs run by us.compute?"
    return f"{done.manifest['rounds']} rounds{trend}{idle}"


def engines(stage: Stage) -> str:
    """All engines give the same bits, in every variant."""
    compared = []
    for label, scenario in stage.variants().items():
        reference = stage.run(scenario.model_copy(update={"engine": "agents"}))
        for engine in ENGINES:
            try:
                with at_once() if engine == "compiled" else nullcontext():
                    other = stage.run(scenario.model_copy(update={"engine": engine}))
            except InputError:  # this engine does not play such a scenario
                continue
            demand_same(reference, other, f"{label}: engines agents and {engine}")
            compared.append(label)
    if not compared:
        raise SkippedError("only the engine agents runs it")
    return f"same bits: {', '.join(dict.fromkeys(compared))}"


def batches(stage: Stage) -> str:
    """How many agents are computed together is of no account."""
    for scenario in (stage.scenario, stage.variants().get("noise", stage.scenario)):
        simulation = build(scenario)
        outcomes = []
        for limit in (1, 2, 1 << 30):
            tables = Tables()
            settings = replace(simulation.settings, batch_limit=limit)
            outcome = replace(simulation, settings=settings).play(tables)
            outcomes.append((outcome.state, tables.read("events"), tables.read("metrics")))
        first, *others = outcomes
        for state, events, metrics in others:
            same = all(np.array_equal(state[k], first[0][k], equal_nan=True) for k in state)
            if not (same and events.equals(first[1]) and metrics.equals(first[2])):
                raise BrokenError("computing agents one by one and together gives other bits")
    return "same bits one by one, two by two and together"


def threads(stage: Stage) -> str:
    """How many threads compute is of no account."""
    before, runs = (jit.PARALLEL_WORK, jit.threads()), []
    try:
        for number, work in ((1, before[0]), (2, 0)):
            jit.set_threads(number)
            jit.PARALLEL_WORK = work
            runs.append(play(stage.scenario))
    finally:
        jit.PARALLEL_WORK = before[0]
        jit.set_threads(before[1])
    demand_same(runs[0], runs[1], "one thread and two")
    return "same bits with one thread and two"


def observers(stage: Stage) -> str:
    """What is measured changes nothing."""
    blind = stage.run(stage.changed(observe__metrics=[], observe__iterates=False))
    seen = stage.run()
    demand_same(seen, blind, "with metrics and without", ("events", "releases"), ("state",))
    return "same log and state without metrics"


def draws(stage: Stage) -> str:
    """No agent draws one batch twice, or reads more than the batch that its terms declare."""
    plain, known = reads(build(stage.scenario)), set[tuple[int, int, int]]()
    for who, rounds, step, count in plain.read:
        some = (count > 0) & (count < plain.sizes[who])
        own = zip(who[some].tolist(), rounds[some].tolist(), strict=True)
        batches = {(i, k, step) for i, k in own}
        if again := sorted(batches & known):
            i, k, _ = again[0]
            raise BrokenError(
                f"agent {i} draws the same batch twice in round {k & 0xFFFFFF}: give the calls of "
                "batch_gradient step=0, 1, ...; two points of one batch are one call"
            )
        known |= batches
    drawn = f"{len(known)} batches, each drawn once" if known else "no batch is drawn"
    with suppress(SkippedError):
        if stage.noisy is not stage.scenario:
            plain = reads(build(stage.noisy))
    plain.demand()
    untold = f"; {plain.unread} releases declare a batch that was not seen to be drawn"
    return drawn + (untold if plain.unread else "")


def repeats(stage: Stage) -> str:
    """Played again, the same comes out: all randomness comes from the seed."""
    demand_same(stage.run(), play(stage.scenario), "simulated twice")
    return "same bits when simulated again"


def resumes(stage: Stage) -> str:
    """A run that is taken further is the longer run."""
    rounds = stage.scenario.stop.rounds or 0
    if rounds < 2:
        raise SkippedError("it has one round")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        play(stage.changed(stop__rounds=rounds // 2), out=path)
        longer = resume(path, {"stop.rounds": rounds})
        demand_same(stage.run(), longer, f"{rounds} rounds, and {rounds // 2} taken further")
    return f"{rounds // 2} rounds taken to {rounds} are a run of {rounds}"


def retimes(stage: Stage) -> str:
    """Told again under another network, without training, it is the run played there."""
    if stage.method.kind == "central":
        raise SkippedError("it sends nothing")
    slow = {"link": {"latency": "0.3 s", "bandwidth": "1 Mbit/s"}}
    try:
        retimed = retime(stage.run(), network=slow)
    except ByValuesError as error:
        raise BrokenError(
            "when it computes, sends or is silent depends on values, and no answer of us.above "
            f"says so: {error.problems[0].split('; ')[-1]}"
        ) from None
    except InputError as error:
        raise SkippedError(error.problems[0]) from None
    demand_same(retimed, play(retimed.scenario), "told again and simulated under another network")
    return "the log under another network, without training, is that of a fresh run there"


LAWS = (
    *(
        (law.__name__, law)
        for law in (
            declares,
            plays,
            engines,
            batches,
            threads,
            observers,
            draws,
            repeats,
            resumes,
            retimes,
        )
    ),
    *PRIVACY_LAWS,
)
