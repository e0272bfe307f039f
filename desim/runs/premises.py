"""What an account of a run needs beside its releases: written at its start, read from then on.

An epsilon is a property of the mechanism only where steps, sizes of messages, numbers of rows and
the end of the run are the same on every pair of neighbouring data sets.
"""

import json
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from desim.errors import DesimError, InputError, refusal
from desim.privacy.papers.theorems import bound_of
from desim.runs.allowance import at_most
from desim.scenario import disclosures
from desim.scenario.own import LOSSES, METHODS

if TYPE_CHECKING:
    from desim.engine.play import Simulation
    from desim.methods.shared.declarations import Method
    from desim.runs.run import Run
    from desim.scenario.schema import Scenario


# What rows decide before a run, or at its end, and neither noise nor a charge covers.

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
    labels = {getattr(problem.data, key, None) for key in ("label", "labels")}
    if problem.partition.by_label or labels & {*problem.partition.columns}:
        yield f"problem.partition: {problem.partition.kind} deals rows by all agents' labels"
    layers = problem.loss.mlp or problem.loss.softmax
    if problem.loss.layered and (layers is None or layers.classes is None):
        yield "problem.loss: classes, and with them the model's size, are counted in the labels"
    if getattr(problem.data, "tokens", "bytes") != "bytes":
        if problem.data.vocabulary is None:
            yield f"problem.data.tokens: the vocabulary is that of all {problem.data.tokens} found"
    elif problem.model is not None and problem.model.of.labels != "numbers":
        stated = getattr(problem.data, "classes", None) is not None
        if not stated and problem.data.source != "text":
            text = "classes, and with them the model's size, are counted in the labels"
            yield f"problem.model: {text}"


def ended_by_rows(run: Any) -> Iterator[str]:
    """That a run failed, which is not known to be independent of what its rows hold."""
    if run.status == "failed":
        yield "the run failed: where rows made it fail, when it ended tells of them"


# The premises as the manifest has them.

PLAIN = "what JSON holds: finite numbers, text, and lists and mappings of them"


class Stated(NamedTuple):
    """In which terms a run's epsilon is, unless others are asked for."""

    delta: float = 1e-5
    view: str = "eavesdropper"
    relation: str = "replace-one"
    accountant: str | None = None


def premises(scenario: "Scenario", simulation: "Simulation") -> dict[str, Any]:
    """What the manifest has under `privacy`, as JSON holds it.

    arithmetic: of gradients; terms: `Stated`, None without a section privacy; claim: inputs of the
    paper's claim, see `Method.claim_inputs`; basis: what sensitivities rest on; tuned: what is
    computed from data without being charged; chosen, where agents are invited by losses: by which
    choice, and whether a budget bounds what that costs; allowed, where data decide how much is
    released: see `desim.runs.allowance.at_most`; changing, where there are any: names of listeners
    that may change what is sent. InputError for a claim that cannot be stored, or
    names no theorem.
    """
    from desim.scenario.check import explained

    method, bounded = simulation.method, math.isfinite(simulation.problem.row_norm)
    with explained(scenario):
        claim = None if scenario.participation.power else _claim(method)  # losses are beside it
        basis = getattr(method.planned(1), "basis", "")
    terms = None if scenario.privacy is None else terms_of(scenario)._asdict()
    own: dict[str, Any] = {
        "arithmetic": simulation.problem.precision,
        "terms": terms,
        "claim": claim,
        "basis": basis,
        "tuned": [*tuned(scenario, bounded)],
    }
    if (trust := simulation.settings.trust) is not None:
        own["trust"] = scenario.privacy.trust if scenario.privacy else "coordinator"
        if trust.factor is not None:
            own["contributions"] = [trust.factor.rounds, trust.apart, *trust.at_most()[2:4]]
    elif method.trusts:
        own["trust"] = method.trusts
    if found := at_most(scenario, simulation):
        own["allowed"] = found
    if changing := disclosures.changing(scenario):
        own["changing"] = changing
    if scenario.participation.power:
        budget = scenario.privacy is not None and scenario.privacy.budget is not None
        own["chosen"] = {"by": scenario.participation.choose, "budget": budget}
    return own


def _claim(method: "Method") -> Any:
    """The inputs of the paper's claim, which JSON can hold."""
    inputs: object = method.claimed()
    if inputs is None:
        return None
    where = f"algorithm {method.name}: claim_inputs"
    if not isinstance(inputs, Mapping):
        raise InputError(
            f"{where}: {refusal(inputs, 'what inputs of desim.method returns, or null')}"
        )
    for key, value in inputs.items():
        try:
            json.dumps({key: value}, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            raise InputError(f"{where}: {key}: {refusal(value, PLAIN)}") from None
    try:
        bound_of(inputs, method.bounds)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    return inputs


def stored(run: "Run") -> dict[str, Any]:
    """What the manifest has of them; of a run of an older version, what its scenario says."""
    if "privacy" in run.manifest:
        return dict(run.manifest["privacy"])
    known = run.known
    if known is None:
        return {}
    terms = None if known.privacy is None else terms_of(known)._asdict()
    return {"terms": terms, "tuned": [*tuned(known)]}


def trusted(run: "Run") -> bool:
    """Whether the run's coordinator is trusted: its sums are releases, of agent -1."""
    return "trust" in (run.manifest.get("privacy") or {})


def stated(run: "Run") -> Stated:
    """The terms of the run; without a section privacy, what that has by default."""
    return Stated(**(stored(run).get("terms") or {}))


def readable_terms(run: "Run") -> Stated:
    """The same; those by default where the scenario of an older version cannot be read."""
    try:
        return stated(run)
    except DesimError:
        return Stated()


def terms_of(scenario: "Scenario") -> Stated:
    """The terms of a scenario."""
    terms = scenario.privacy
    if terms is None:
        return Stated()
    return Stated(terms.delta, str(terms.view), terms.neighbours, terms.accountant)


# Runs that were deployed: what can be done with a simulation and not with real seconds.

SIMULATE = "desim run with its scenario.yaml simulates it"
AT_AGENTS = "kept by the agents"  # what the manifest says of states that never left their processes
TEST = (
    "infinite: this deployment is a test: agents' states before noise went to the coordinator and "
    "are in the run; with a section privacy and its noise_seed: os they stay with the agents"
)
OLD_TEST = (
    "infinite: in this deployment, of an older version, agents' states before noise went to the "
    "coordinator and are in the run"
)


def real(manifest: Mapping[str, Any]) -> bool:
    """Whether a run was deployed: its seconds are those of a clock."""
    return (manifest.get("clock") or {}).get("kind") == "real"


def unrepeatable(manifest: Mapping[str, Any]) -> bool:
    """Whether a run's noise came from the operating system."""
    return (manifest.get("privacy") or {}).get("noise") == "os"


def exposed(manifest: Mapping[str, Any]) -> str:
    """Why no epsilon of a deployed run is finite; empty where agents kept what has no noise."""
    if not real(manifest) or (manifest.get("privacy") or {}).get("states") == AT_AGENTS:
        return ""
    return OLD_TEST if unrepeatable(manifest) else TEST


def require_virtual(manifest: Mapping[str, Any], what: str) -> None:
    """InputError for a deployed run, of which `what` is impossible."""
    if not real(manifest):
        return
    text = f"{manifest['name']}: was deployed, and real seconds do not come again: {what}"
    if unrepeatable(manifest):
        text += "; nor does its noise, which the operating system drew"
    raise InputError(f"{text}; {SIMULATE}")


# What an epsilon rests on that this run has not tried: plug-ins' words, coarse arithmetic.

TESTED = "untested by this run; desim check --contract {name} tests them"
COARSE = (
    "infinite: what noise was added to was computed in IEEE singles, by an older version or by a "
    "plug-in with noise of its own; they round a parameter by 6e-8 of its size, and nothing bounds "
    "what that tells of a record"
)
FAILED = (
    "infinite: the run failed; that it did, and when, may follow from the data, and is not charged"
)
SHORT = "sensitivities as plug-in {name} declares them, untested"


def declared(run: "Run") -> Iterator[str]:
    """One line for each plug-in whose word the run's epsilon takes, or that changes messages."""
    method, loss = plugged(run)
    if method:
        tested = TESTED.format(name=method)
        yield f"sensitivities are declared by plug-in {method}, {tested}"
    if loss:
        tested = TESTED.format(name=loss)
        yield f"slopes and curvatures of the loss are declared by plug-in {loss}, {tested}"
    if model := model_of(run):
        tested = TESTED.format(name=model)
        yield f"the start and clipped gradients of rows are computed by plug-in {model}, {tested}"
    if names := (run.manifest.get("privacy") or {}).get("changing"):
        yield disclosures.uncounted(names)


def void(run: "Run") -> str:
    """Why no epsilon of a run is finite, whatever its releases cost; empty where nothing is so."""
    failed = run.status == "failed" and with_noise(run)  # it is seen when, and not charged
    return exposed(run.manifest) or FAILED * failed or coarse(run)


def with_noise(run: "Run") -> bool:
    """Whether a run states what its releases cost, or any of them has noise."""
    if (run.manifest.get("privacy") or {}).get("terms") is not None:
        return True
    return any((rows["scale"] > 0.0).any() for rows in run.store.pieces("releases", ["scale"]))


def coarse(run: "Run") -> str:
    """COARSE where noise was added to what singles computed: by an older version, a plug-in."""
    kind = (run.manifest.get("privacy") or {}).get("arithmetic")
    if trusted(run):  # who clips in doubles
        return ""
    if kind is not None:
        return COARSE if kind == "float32" and with_noise(run) else ""
    try:
        problem, local = run.written["problem"], run.written["algorithm"]["local"]
        solver, usual = local["solver"], "float32" if "model" in problem else "float64"
    except (KeyError, TypeError):
        return ""
    noisy = "noisy" in ([solver] if isinstance(solver, str) else solver)
    return COARSE if noisy and problem.get("precision", usual) == "float32" else ""


def shortly(run: "Run") -> str:
    """The same of a method in a few words; empty where it is desim's own."""
    method = plugged(run)[0]
    return SHORT.format(name=method) if method else ""


def plugged(run: "Run") -> tuple[str, str]:
    """Names of the run's method and loss, each empty where it is desim's own or not known."""
    method, loss = names(run)
    return "" if method in METHODS else method, "" if loss in LOSSES else loss


def names(run: "Run") -> tuple[str, str]:
    """Names of method and loss, as the scenario has them, be it that it loads no more.

    The loss of a model that a plug-in brings has no name.
    """
    try:
        written = run.written
        problem, name = written["problem"], str(written["algorithm"]["name"])
        loss = "" if "model" in problem else problem["loss"]
        return name, str(next(iter(loss)) if isinstance(loss, dict) else loss)
    except (KeyError, TypeError, StopIteration):
        return "", ""


def model_of(run: "Run") -> str:
    """The name of the run's model, which a plug-in brings; empty where it has none."""
    try:
        model = run.written["problem"]["model"]
        return str(model["name"] if isinstance(model, dict) else model)
    except (KeyError, TypeError):
        return ""
