"""Whether runs are one and the same, share data or noise, and what delays may change."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from desim.errors import DesimError, InputError, refusal
from desim.numerics.later import pd
from desim.problem.fairness import OF_TESTS
from desim.runs.premises import names, plugged, unrepeatable
from desim.runs.reading.series import other_problems
from desim.runs.run import Run
from desim.scenario.disclosures import changing

if TYPE_CHECKING:
    from desim.scenario.schema import Scenario

# Why delays may change what a run computes, or when its metrics are true, in words.

OF_MODEL = ("loss", "gradient", *OF_TESTS)  # of the coordinator's model alone


def obstacles(run: Run) -> list[str]:
    """Why delays may change what `run` has computed, one line for each reason."""
    found = []
    if run.status != "done":
        found.append(f"{run.name}: the run is {run.status}; allowed: one that is done")
    elif str(run.manifest["reason"]).startswith("stop.time"):
        text = "the run ended by time, which other delays fill with other rounds"
        found.append(f"stop.time: {text}; allowed: stop.rounds")
    return found + delayed(run.scenario)


def delayed(scenario: "Scenario") -> list[str]:
    """Why delays may change what a run of `scenario` computes, one line for each reason."""
    found, policy = [], scenario.policy.kind
    if policy != "all":
        text = "who is heard when a wait ends depends on the delays"
        found.append(f"policy.{policy}: {text}; allowed: policy all")
    if scenario.network.topology.tree is not None:
        text = "found a tree, of whose edges' rounds no clock is kept"
        found.append(f"network.topology: {text}; allowed: star")
    if (choice := scenario.participation.choose) is not None:
        text = "who is invited follows from what came before, and when"
        others = "all, bernoulli, uniform, schedule, trace"
        found.append(f"participation.choose: found {choice}; {text}; allowed: {others}")
    if scenario.churn is not None:
        text = "which computations and messages an absence meets depends on the delays"
        found.append(f"churn: {text}; allowed: none")
    if scenario.battery is not None:
        text = "when an agent is empty, and which computations that meets, depends on the delays"
        found.append(f"battery: {text}; allowed: none")
    clip = None if scenario.privacy is None else scenario.privacy.clip
    if clip is not None and clip.quantile is not None:
        text = "it follows what was replied, and with it what sums cost"
        found.append(f"privacy.clip: found a quantile; {text}; allowed: a number")
    if names := changing(scenario):
        text = "may change what is computed by when it is sent"
        found.append(f"listeners: {names} {text}; allowed: listeners of rows alone")
    if scenario.kind != "graph":
        return found
    ends = [f"stop.metric.{name}" for name in scenario.stop.targets]
    if scenario.privacy is not None and scenario.privacy.on_exhausted == "stop":
        ends.append("privacy.on_exhausted")
    text = "it stops all agents of a graph at one time, at which some are further than others"
    return found + [f"{key}: {text}; allowed: stop.rounds" for key in ends]


def unstored(coordinator: bool, metrics: Sequence[str], timed: bool, iterates: bool) -> list[str]:
    """What must have been stored for metrics to have other times, in words.

    timed: they are taken every so many seconds; iterates: models of all rounds were stored.
    """
    cure = "allowed: a run with observe.iterates: true, or observe.metrics: []"
    if not metrics or iterates:
        return []
    if not coordinator:
        text = "metrics of a graph method depend on who is how far"
        return [f"observe.iterates: found false; {text}; {cure}"]
    if timed and not set(metrics) <= set(OF_MODEL):
        text = "metrics every so many seconds need the models of all rounds"
        return [f"observe.iterates: found false; {text}; {cure}"]
    return []


# What runs have in common.

FREE = ("name", "observe", "log", "engine", "stop")  # sections that change no bit of a release
CARRIED = ("network", "compute")  # sections that change none where delays change no value
COMPARED = ["release", "agent", "mechanism", "sensitivity", "scale", "sampling"]
HASHES = {  # of a model, in words
    "first_sha256": "the hash of its first gradients",
    "fixed_sha256": "the hash of the numbers that no training changes",
}
ALIKE = (
    "runs of one seed share their noise: who sees two of them can remove it. Each epsilon is that "
    "of one run alone; desim privacy RUN RUN says what they cost together"
)


def same_seed(one: Run, other: Run) -> bool:
    """Whether both draw from the same streams; unknown seeds are taken for the same."""
    from desim.numerics.keys import seed_word

    seeds = [run.manifest.get("seed") for run in (one, other)]
    if any(not isinstance(seed, int) for seed in seeds):
        return True
    return bool(seed_word(seeds[0]) == seed_word(seeds[1]))


def same_noise(one: Run, other: Run) -> bool:
    """Whether noise of one may be that of the other: not where the operating system has drawn."""
    return same_seed(one, other) and not (
        unrepeatable(one.manifest) or unrepeatable(other.manifest)
    )


def same_data(one: Run, other: Run) -> bool:
    """Whether every agent has the same rows in both, as far as that is known."""
    found = one.manifest.get("problem_sha256")
    return found is not None and found == other.manifest.get("problem_sha256")


def other_problem(runs: Iterable[Run]) -> bool:
    """Whether runs of one seed have other data, another loss, or a model of other numbers.

    A model's bits are compared where its libraries and device are the same.
    """
    found: dict[tuple[str, ...], set[str]] = {}
    for run in runs:
        seed, model = str(run.manifest.get("seed")), run.manifest.get("model", {})
        place = seed, str(model.get("libraries")), str(model.get("device"))
        for key, value in (
            ((seed,), run.manifest.get("problem_sha256")),
            (place, model.get("first_sha256")),
        ):
            if value is not None:
                found.setdefault(key, set()).add(value)
    return any(len(hashes) > 1 for hashes in found.values())


def problems_apart(firsts: Sequence[Run], every: Iterable[Run]) -> tuple[list[str], bool]:
    """Keys of `problem` in which firsts differ, and whether metrics of all do not compare.

    firsts: one run of each label, every: all of them.
    """
    keys = other_problems(firsts)
    return keys, bool(keys) or other_problem(every)


def refuse_other_model(where: Any, found: Mapping[str, Any], manifest: Mapping[str, Any]) -> None:
    """InputError unless a model has the libraries, device and first gradients of the run's."""
    for key, value in manifest.get("model", {}).items():
        if found.get(key) != value:
            text = refusal(found.get(key), f"{value}, as in the run")
            raise InputError(f"{where}: model: {HASHES.get(key, key)}: {text}")


def refuse_other_problem(
    where: Any, found: str, manifest: Mapping[str, Any], sources: Mapping[str, str]
) -> None:
    """InputError unless a problem has the run's digest, with what is another one, as far as known.

    found: its digest; sources: digests of the files that its scenario names, as they are now.
    """
    stored, before = manifest.get("problem_sha256"), manifest.get("sources", {})
    if found == stored:
        return
    odd = [one for one, digest in sources.items() if before.get(one, digest) != digest]
    why = f"found another {', '.join(odd)}" if odd else "in rows, or in how agents have them"
    why = f"{why}; sha256 {found[:12]}..., stored {str(stored)[:12]}..."
    raise InputError(f"{where}: the data are not those of the run ({why}); allowed: as they were")


def unrelated(one: Run, other: Run) -> bool:
    """Whether it is known that no record is in both: rows generated from different seeds."""
    try:
        sources = [getattr(run.scenario.problem.data, "source", "") for run in (one, other)]
    except DesimError:
        return False
    return sources == ["synthetic", "synthetic"] and not same_seed(one, other)


def same_run(whole: Run, part: Run) -> bool:
    """Whether all that `part` has released is among what `whole` has, bit by bit.

    Their scenarios differ at most in what changes no release, so that equal noise is on equal
    values; one of them may have ended before. What has arrived in `part` has in `whole`, too.
    """
    if not same_values(whole, part):
        return False
    long, short = (run.store.table("releases", COMPARED) for run in (whole, part))
    if not short["release"].isin(long["release"]).all():
        return False
    arrived = []
    for run in (part, whole):
        table = run.store.table("releases", ["release", "delivered"])
        arrived.append(set(table.loc[table["delivered"] > 0, "release"].tolist()))
    return arrived[0] <= arrived[1]


def same_values(one: Run, other: Run) -> bool:
    """Whether noise that both have drawn is on the same values, so that no difference removes it.

    What both have released is the same, bit by bit; so are their models where both ended alike.
    """
    if not same_noise(one, other) or not same_data(one, other) or not _same_training(one, other):
        return False
    tables = [run.store.table("releases", COMPARED) for run in (one, other)]
    mine, others = (
        table[table["release"].isin(twin["release"])]
        for table, twin in zip(tables, tables[::-1], strict=True)
    )
    if _rows(mine) != _rows(others):
        return False
    alike = len(mine) == len(tables[0]) == len(tables[1])
    return not alike or one.status != "done" or other.status != "done" or _same_models(one, other)


def _same_models(one: Run, other: Run) -> bool:
    """Whether the agents' last models are the same bits, as far as they are stored."""
    last = [run.store.arrays("state").get("x") for run in (one, other)]
    return last[0] is None or last[1] is None or last[0].tobytes() == last[1].tobytes()


def _same_training(one: Run, other: Run) -> bool:
    """Whether scenarios say the same of what is released, be it that one was retimed to another.

    What a model reads beside its file is in no scenario: its first gradients tell.
    """
    if one.manifest.get("model") != other.manifest.get("model"):
        return False
    trained = [run.manifest.get("retimed", run.manifest) for run in (one, other)]
    roots = [manifest.get("scenario_sha256") for manifest in trained]
    if roots[0] is not None and roots[0] == roots[1]:
        return True
    try:
        scenarios = [run.scenario.written() for run in (one, other)]
    except DesimError:
        return False
    noises = [(said.get("privacy") or {}).get("noise") or {} for said in scenarios]
    shared_out = any(noise.get("composition", "none") != "none" for noise in noises)
    free = {*FREE} - {"stop"} if shared_out else {*FREE}  # over the rounds: the end changes it
    rests = [{key: part for key, part in said.items() if key not in free} for said in scenarios]
    if rests[0] == rests[1]:
        return True
    carried = [{name: rest.pop(name, None) for name in CARRIED} for rest in rests]
    return rests[0] == rests[1] and _undelayed(one, other, carried)


def _undelayed(one: Run, other: Run, carried: Sequence[Mapping[str, Any]]) -> bool:
    """Whether other links and devices change no value on one graph; a plug-in may look at them.

    carried: both runs' sections of CARRIED.
    """
    from desim.scenario import registry

    if any(plugged(run)[0] or delayed(run.scenario) for run in (one, other)):
        return False
    if one.scenario.network.topology != other.scenario.network.topology:
        return False
    paced = registry.get(names(one)[0]).timed
    return not paced or carried[0]["compute"] == carried[1]["compute"]


def _rows(table: "pd.DataFrame") -> list[bytes]:
    """Each row's bits, in an order that is theirs."""
    words = table["mechanism"].astype(str).to_numpy()
    numbers = table.drop(columns="mechanism").to_numpy(np.float64)
    return sorted(
        f"{word} ".encode() + row.tobytes() for word, row in zip(words, numbers, strict=True)
    )


def noisy(run: Run) -> bool:
    """Whether something was released with noise."""
    pieces = run.store.pieces("releases", ["mechanism"])
    return any(not rows["mechanism"].equal("none").all() for rows in pieces)


def sharing(groups: Sequence[Iterable[Run]]) -> str:
    """A note where runs of different groups have one seed and noise; empty where none have."""
    known: dict[int, bool] = {}

    def drawn(run: Run) -> bool:
        if id(run) not in known:
            known[id(run)] = noisy(run) and not unrepeatable(run.manifest)
        return known[id(run)]

    for some, others in combinations([list(group) for group in groups], 2):
        seeds = {run.manifest.get("seed"): run for run in some}
        for run in others:
            twin = seeds.get(run.manifest.get("seed"))
            if twin is None or twin is run or (same_data(twin, run) and _same_training(twin, run)):
                continue
            if drawn(twin) and drawn(run):
                return ALIKE
    return ""
