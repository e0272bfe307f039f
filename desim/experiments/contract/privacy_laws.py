"""The laws of what an algorithm reveals: all of it in the ledger, and no more than it declares."""

import numpy as np

from desim.experiments.audit.check import TranscriptCheck, transcript_check
from desim.experiments.audit.neighbours import worst_pair
from desim.experiments.audit.pairs import unobserved
from desim.experiments.contract.finding import BrokenError, SkippedError
from desim.experiments.contract.stage import Stage
from desim.network.timeline.record import is_beside
from desim.runs.run import Run
from desim.scenario.build import build

AGENTS = 8  # of a larger problem the first ones stand for all
FEW = 3  # rounds in which the others are looked at
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
            pair = worst_pair(unobserved(simulation, FEW), agent, row=0)
            largest = max(largest, _largest(transcript_check(pair, FEW)))
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
