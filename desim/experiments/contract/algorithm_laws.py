"""The laws of an algorithm, in the order in which they are worth reading."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from desim.errors import InputError
from desim.experiments.contract.bits import demand_same
from desim.experiments.contract.finding import BrokenError, Finding, SkippedError, findings
from desim.experiments.contract.privacy_laws import PRIVACY_LAWS
from desim.experiments.contract.reads import reads
from desim.experiments.contract.stage import Stage
from desim.log.parquet import Tables
from desim.numerics import jit
from desim.numerics.plain import at_once
from desim.runs.play import run as play
from desim.runs.resume import resume
from desim.runs.retime import ByValuesError, retime
from desim.scenario import registry
from desim.scenario.build import build
from desim.scenario.schema import Scenario

ENGINES = ("cohort", "compiled")


def algorithm(
    name: str, scenario: Scenario | None = None, overrides: Mapping[str, Any] | None = None
) -> Iterator[Finding]:
    """Check each law of the algorithm of that name, in turn.

    scenario: where it is tried, cut to 12 rounds; default: a small one on unequal links. overrides:
    dotted keys of it, such as parameters without a default. InputError where it cannot be tried.
    """
    return findings(LAWS, Stage(registry.get(name), scenario, overrides))


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
        kept = []
        for limit in (1, 2, 1 << 30):
            tables = Tables()
            settings = replace(simulation.settings, batch_limit=limit)
            outcome = replace(simulation, settings=settings).play(tables)
            kept.append((outcome.state, tables.read("events"), tables.read("metrics")))
        for state, events, metrics in kept[1:]:
            same = all(np.array_equal(state[k], kept[0][0][k], equal_nan=True) for k in state)
            if not (same and events.equals(kept[0][1]) and metrics.equals(kept[0][2])):
                raise BrokenError("computing agents one by one and together gives other bits")
    return "same bits one by one, two by two and together"


def threads(stage: Stage) -> str:
    """How many threads compute is of no account."""
    before, kept = (jit.PARALLEL_WORK, jit.threads()), []
    try:
        for number, work in ((1, before[0]), (2, 0)):
            jit.set_threads(number)
            jit.PARALLEL_WORK = work
            kept.append(play(stage.scenario))
    finally:
        jit.PARALLEL_WORK = before[0]
        jit.set_threads(before[1])
    demand_same(kept[0], kept[1], "one thread and two")
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
        some = (count > 0) & (count < plain.held[who])
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
        told = retime(stage.run(), network=slow)
    except ByValuesError as error:
        raise BrokenError(
            "when it computes, sends or is silent depends on values, and no answer of us.above "
            f"says so: {error.problems[0].split('; ')[-1]}"
        ) from None
    except InputError as error:
        raise SkippedError(error.problems[0]) from None
    demand_same(told, play(told.scenario), "told again and simulated under another network")
    return "the log under another network, without training, is that of a fresh run there"


LAWS = (
    ("declares", declares),
    ("plays", plays),
    ("engines", engines),
    ("batches", batches),
    ("threads", threads),
    ("observers", observers),
    ("draws", draws),
    ("repeats", repeats),
    ("resumes", resumes),
    ("retimes", retimes),
    *PRIVACY_LAWS,
)
