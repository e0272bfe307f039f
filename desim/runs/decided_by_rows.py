"""What rows decide before a run, or at its end, and neither noise nor a charge covers.

An epsilon is a property of the mechanism only where steps, sizes of messages, numbers of rows and
the end of the run are the same on every pair of neighbouring data sets.
"""

from collections.abc import Iterator
from typing import Any

BY_LABEL = ("dirichlet", "labels")
STATISTICS = {  # keys of problem.data whose values take something from all agents' training rows
    "encode": ("one-hot", "ordinal"),
    "missing": ("most-frequent", "mean", "median"),
    "scale": ("standard", "minmax", "max", "unit-ball"),
}


def tuned(scenario: Any, public: bool = False) -> Iterator[str]:
    """Settings of a scenario that are computed from private data and that nobody charges.

    public: whether moduli that hold for every data set give training its steps, where noise is.
    """
    local, terms = getattr(scenario.algorithm.parameters, "local", None), scenario.privacy
    noise = terms is not None and (terms.noise is not None or terms.target is not None)
    known = public and local is not None and ("noisy" in local.solvers or noise)
    stepped = local is not None and isinstance(local.step, str) and not known
    if local is not None and stepped and "exact" not in local.solvers:
        yield f"algorithm.local.step: {local.step} is computed from the data's smoothness"
    if local is not None and isinstance(local.momentum, str) and "accelerated" in local.solvers:
        yield f"algorithm.local.momentum: {local.momentum} is computed from the data's moduli"
    read = scenario.problem.data
    common = [(key, getattr(read, key, "none")) for key in STATISTICS]
    named = [f"problem.data.{key}: {how}" for key, how in common if how in STATISTICS[key]]
    if named:
        verb = "is" if len(named) == 1 else "are"
        yield f"{', '.join(named)} {verb} computed from all agents' data"
    yield from decided_by_rows(scenario, public)


def decided_by_rows(scenario: Any, public: bool = False) -> Iterator[str]:
    """Settings of a scenario beside local training and statistics that follow from rows.

    public: whether moduli that hold for every data set give steps with noise.
    """
    parameters, problem = scenario.algorithm.parameters, scenario.problem
    noise = None if scenario.privacy is None else scenario.privacy.noise
    known = public and noise is not None and noise.sigma != 0.0
    if getattr(parameters, "step", None) == "auto" and not known:
        yield "algorithm.step: auto is computed from the data's smoothness"
    auto = getattr(parameters, "momentum", None) == "auto" and not known
    if auto and parameters.solver == "accelerated":
        yield "algorithm.momentum: auto is computed from the data's smoothness"
    init = getattr(parameters, "init", None)
    if init is not None and init.kind == "npz":
        yield "algorithm.init: models of a file may have been trained on the rows"
    if getattr(problem.data, "missing", "") == "drop":
        yield "problem.data.missing: drop: how many rows there are depends on what they hold"
    if hasattr(getattr(problem.data, "test", None), "column"):
        yield "problem.data.test: which rows are trained on, and how many, is what a column holds"
    if problem.partition.kind in BY_LABEL:
        yield f"problem.partition: {problem.partition.kind} deals rows by all agents' labels"
    layers = problem.loss.mlp or problem.loss.softmax
    if problem.loss.layered and (layers is None or layers.classes is None):
        yield "problem.loss: classes, and with them the model's size, are counted in the labels"
    if getattr(problem.data, "tokens", "bytes") != "bytes":
        if problem.data.vocabulary is None:
            yield f"problem.data.tokens: the vocabulary is that of all {problem.data.tokens} found"
    elif problem.model is not None and _counted(problem):
        yield "problem.model: classes, and with them the model's size, are counted in the labels"


def _counted(problem: Any) -> bool:
    """Whether a model's classes are counted, so far as the scenario says it."""
    data = problem.data
    told = getattr(data, "classes", None) is not None or data.source == "text"
    return problem.model.of.labels != "numbers" and not told


def ended_by_rows(run: Any) -> Iterator[str]:
    """That a run failed, which is not known to be independent of what its rows hold."""
    if run.status == "failed":
        yield "the run failed: where rows made it fail, when it ended tells of them"
