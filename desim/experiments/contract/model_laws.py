"""The laws of a model: a pure function of parameters and rows, its gradient, and what learns."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from desim.arrays import Array
from desim.errors import InputError, RunError, raised, refusal
from desim.experiments.audit.neighbours import extremes
from desim.experiments.contract.stage import (
    BrokenError,
    Finding,
    ModelStage,
    SkippedError,
    demand_same,
    findings,
)
from desim.problem.models.user_model import Model, Rows
from desim.runs.recording import run as play
from desim.scenario import registry
from desim.scenario.schema import Scenario

FINE, COARSE = 1e-5, 1e-2  # relative, of differences in float64, in float32
ALIKE = 1e-4  # relative to the sizes of what is added, of two ways to the same sum
CUT = 1e-5  # relative to the clip, of a cut gradient to that of a loop
STEPS = (0.3, 0.1, 0.03, 0.01, 0.001)  # of fedavg, the first that works


def model(
    name: str, scenario: Scenario | None = None, overrides: Mapping[str, Any] | None = None
) -> Iterator[Finding]:
    """Check each law of the plug-in's model of that name, in turn.

    scenario: whose rows it is tried on, and with whose parameters; default: generated rows of the
    shape that the class states as `example`. overrides: dotted keys, such as problem.model.hidden.
    """
    known = registry.plugged().models
    if name not in known:
        raise InputError(f"model: {refusal(name, ', '.join(known) or 'none is plugged in', known)}")
    folder = tempfile.TemporaryDirectory()
    stage = ModelStage(known[name], Path(folder.name), scenario, overrides)

    def checked() -> Iterator[Finding]:
        with folder:
            yield from findings(LAWS, stage)

    return checked()


def starts(stage: ModelStage) -> str:
    """`initial` is a finite flat vector, the same twice and of two instances."""
    of, seed = stage.problem.loss.start, stage.facts.seed  # type: ignore[attr-defined]
    models = stage.instance(), stage.model, stage.model
    for model, when in zip(models, ("of another instance", "asked for", "again"), strict=True):
        if not np.array_equal(np.asarray(model.initial(seed), float), of):
            raise BrokenError(f"initial({seed}) is another one {when}: draw from `seed` alone")
    return f"{len(of)} parameters, the same for a seed"


def finite(stage: ModelStage) -> str:
    """Loss and gradient are numbers, at the start and near it."""
    x, rows = stage.places(3), stage.rows()
    for one in x:
        for what, found, shape in (
            ("loss", stage.model.loss(one, rows), (len(rows.labels),)),
            ("gradient", stage.model.gradient(one, rows), one.shape),
        ):
            if np.shape(found) != shape:
                raise BrokenError(f"{what} has shape {np.shape(found)}; allowed: {shape}")
            if not np.isfinite(found).all():
                raise BrokenError(f"{what} is not finite near the start")
    return "loss and gradient are numbers near the start"


def derivative(stage: ModelStage) -> str:
    """`gradient` is the derivative of the sum of the losses: by central differences."""
    model, rows = stage.instance(precision="float64"), stage.rows(key=None)
    if rows.inputs.dtype.kind == "f":
        rows = rows._replace(inputs=rows.inputs.astype(np.float64))
    x = stage.places(1)[0].astype(np.float64)
    gradient = np.asarray(model.gradient(x, rows), float)
    losses = np.asarray(model.loss(x, rows), float)
    fine = bool((losses != losses.astype(np.float32)).any())
    near, rng = FINE if fine else COARSE, np.random.default_rng(1)
    size, worst = float(np.linalg.norm(gradient)), 0.0
    for along in (gradient, *rng.normal(size=(3, len(x)))):
        unit = along / max(float(np.linalg.norm(along)), 1e-30)
        said, apart = float(gradient @ unit), []
        for step in (1e-6, 1e-5) if fine else (1e-3, 1e-2, 1e-1):
            ahead, behind = (np.sum(model.loss(x + h * unit, rows)) for h in (step, -step))
            apart.append(abs(float(ahead - behind) / (2.0 * step) - said))
        worst = max(worst, min(apart) / max(size, 1e-6))
        if worst > near:
            raise BrokenError(
                f"along a direction it says {said:.6g}, differences of the summed losses say "
                f"another slope, {min(apart):.3g} apart; allowed: {near:g} of its norm {size:.4g}"
            )
    return f"it is that of the summed losses, to {worst:.1e} (allowed: {near:g})"


def examples(stage: ModelStage) -> str:
    """The gradients of rows add up to that of all."""
    x = stage.places(1)[0]
    for key in (None, 11):
        rows = stage.rows(key=key)
        each = _each(stage, x, rows)
        if each.shape != (len(rows.labels), len(x)):
            allowed = f"allowed: {(len(rows.labels), len(x))}"
            raise BrokenError(f"example_gradients has shape {each.shape}; {allowed}")
        apart = float(np.abs(each.sum(0) - stage.model.gradient(x, rows)).max())
        most = float(np.linalg.norm(each, axis=1).sum())
        if apart <= ALIKE * max(most, 1e-6):
            return f"example_gradients add up to gradient, to {apart / max(most, 1e-6):.1e}"
        if not _random(stage):
            break
    if _random(stage):
        raise SkippedError("its random layers draw otherwise for rows than for batches")
    raise BrokenError(f"example_gradients add up to something {apart:.3g} off gradient")


def clips(stage: ModelStage) -> str:
    """`clipped` is a loop over rows cut one by one, none of which is longer than the clip."""
    x, rows = stage.places(1)[0], stage.rows()
    each = _each(stage, x, rows)
    norms = np.linalg.norm(each, axis=1)
    clip = float(max(np.median(norms), 1e-6))
    factors = np.minimum(1.0, clip / np.maximum(norms, 1e-30))
    apart = np.abs(stage.model.clipped(x, rows, clip) - factors @ each).max() / clip
    if not apart <= CUT * len(each):
        raise BrokenError(f"clipped is {apart:.2g} clips off a loop; allowed: {CUT * len(each):g}")
    for cut in (clip, 1e-3 * clip):
        for h in range(len(each)):
            alone = np.asarray(stage.model.clipped(x, rows.part(h, h + 1), cut), float)
            if (length := float(np.linalg.norm(alone))) > cut:
                raise BrokenError(f"a row cut to {cut:.9g} has a gradient of norm {length:.9g}")
    tried = _bounded(stage, x, clip)
    return f"as row by row, to {apart:.1e} of the clip; no row is above it{tried}"


def _bounded(stage: ModelStage, x: Array, clip: float) -> str:
    """How many rows without measure were tried; BrokenError where one adds more than the clip."""
    rows, tried = stage.rows(key=None), 0
    with np.errstate(all="ignore"):
        usual = np.asarray(stage.model.clipped(x, rows, clip), float)
        for inputs, labels in extremes(rows.inputs[0], rows.labels[0], stage.of.labels):
            odd = Rows(np.concatenate([rows.inputs, inputs[None]]),
                       np.concatenate([rows.labels, labels[None]]))  # fmt: skip
            beside = np.asarray(stage.model.clipped(x, odd, clip), float) - usual
            alone = stage.model.clipped(x, odd.part(len(rows.labels), len(odd.labels)), clip)
            for added in (beside, np.asarray(alone, float)):
                if not (size := float(np.linalg.norm(added))) <= clip * (
                    1.0 + len(odd.labels) * CUT
                ):
                    text = f"a row of inputs up to {np.abs(inputs).max():.3g}, label "
                    text += f"{np.ravel(labels)[0]:.3g}, adds a gradient of norm {size:.3g}"
                    allowed = f"{clip:.3g}, the clip; what is not finite counts as 0"
                    raise BrokenError(f"{text}; allowed: {allowed}")
            tried += 1
    return f", nor {tried} rows without measure" if tried else ""


def rows(stage: ModelStage) -> str:
    """What a row gives does not depend on the rows beside it."""
    x, rows = stage.places(1)[0], stage.rows(key=None)
    losses = stage.model.loss(x, rows)
    each = [stage.model.gradient(x, rows.part(h, h + 1)) for h in range(len(losses))]
    alone = np.concatenate([stage.model.loss(x, rows.part(h, h + 1)) for h in range(len(losses))])
    apart = np.abs(losses - alone) / (1.0 + np.abs(alone))
    allowed = "rows that do not mix, as batch normalisation mixes them"
    if (worst := int(apart.argmax())) >= 0 and apart[worst] > ALIKE:
        found = f"{alone[worst]:.6g} alone and {losses[worst]:.6g} beside others"
        raise BrokenError(f"the loss of a row is {found}; allowed: {allowed}")
    off = np.abs(np.sum(each, 0) - stage.model.gradient(x, rows)).max()
    most = float(np.linalg.norm(each, axis=1).sum())
    if off > ALIKE * max(most, 1e-6):
        raise BrokenError(f"gradients of rows alone do not add up, {off:.3g} off; {allowed}")
    return "loss and gradient of a row are the same alone and beside others"


def state(stage: ModelStage) -> str:
    """Calls in another order, other rows between, another instance: the same bits."""
    x, one, other = stage.places(2), stage.rows(), stage.rows(9, 12, 5)
    first = [np.array(ask()) for ask in _asked(stage.model, x[0], one)]
    for ask in reversed(_asked(stage.model, x[1], other)):
        ask()
    later = [np.array(ask()) for ask in reversed(_asked(stage.model, x[0], one))][::-1]
    fresh = [np.array(ask()) for ask in _asked(stage.instance(), x[0], one)]
    for found, when in ((later, "after other calls"), (fresh, "of another instance")):
        for what, a, b in zip(("loss", "gradient", "clipped"), first, found, strict=False):
            if not np.array_equal(a, b):
                cure = "no state between calls, random numbers from rows.key"
                raise BrokenError(f"{what} is another one {when}; allowed: {cure}")
    stage.model.settled()
    return "the same bits in any order, and of another instance"


def together(stage: ModelStage) -> str:
    """Agents computed together have the bits of agents computed one by one."""
    n = 7
    x, rows = stage.places(n), stage.many(n, 5)
    for clip in (np.inf, 0.5) if stage.of.cuts() else (np.inf,):
        whole = np.array(stage.model.gradients(x, rows, clip))
        for low, high in ((0, 1), (1, 3), (3, n)):
            some = Rows(rows.inputs[low:high], rows.labels[low:high], rows.key[low:high])
            found = stage.instance().gradients(x[low:high], some, clip)
            if not np.array_equal(found, whole[low:high]):
                text = f"gradients of {high - low} agents have other bits than beside {n - 1}"
                raise BrokenError(f"{text}; allowed: no bit depends on how many are in a call")
    return f"{n} agents together have the bits of each alone"


def threads(stage: ModelStage) -> str:
    """Called by several threads at once it gives the same bits."""
    if not stage.of.threads:
        raise SkippedError("it says `threads = False`: one call at a time")
    x, rows = stage.places(4), stage.many(4, 5)
    right = [np.array(stage.model.gradient(x[r], rows.agent(r))) for r in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(
            pool.map(lambda r: stage.model.gradient(x[r % 4], rows.agent(r % 4)), range(16))
        )
    if not all(np.array_equal(one, right[r % 4]) for r, one in enumerate(found)):
        raise BrokenError("called by four threads it gives other bits; allowed: `threads = False`")
    return "the same bits from four threads at once"


def random(stage: ModelStage) -> str:
    """Random layers are those of `rows.key`, and a model that is measured has none."""
    x, rows = stage.places(1)[0], stage.rows()
    if not np.array_equal(stage.model.loss(x, rows), stage.model.loss(x, rows._replace(key=None))):
        raise BrokenError("loss depends on rows.key; allowed: random layers in gradients alone")
    np.random.seed(1)  # noqa: NPY002  numbers that nobody declares
    first = np.array(stage.model.gradient(x, rows))
    np.random.seed(2)  # noqa: NPY002
    if not np.array_equal(first, stage.instance().gradient(x, rows)):
        raise BrokenError("the gradient for a key is another one when asked for again")
    return "random layers, by rows.key" if _random(stage) else "nothing is drawn"


def predicts(stage: ModelStage) -> str:
    """`predict` has the shape of labels."""
    rows = stage.rows()
    try:
        found = np.asarray(stage.model.predict(stage.places(1)[0], rows))
    except NotImplementedError:
        raise SkippedError("it has no predict: the metric accuracy cannot be used") from None
    if stage.of.labels != "numbers" and found.shape != rows.labels.shape:
        raise BrokenError(f"predict has shape {found.shape}; allowed: {rows.labels.shape}")
    return f"shape {found.shape}, as labels have"


def learns(stage: ModelStage) -> str:
    """Fedavg lowers the loss within some rounds, and engines give the same bits."""
    said = "" if stage.problem.agents else "; nobody has rows"
    for step in STEPS:
        scenario = stage.changed(algorithm__local__step=step)
        try:
            one = play(scenario.model_copy(update={"engine": "cohort"}))
        except RunError as error:
            said = f"; with step {step:g} {raised(error)}"
            continue
        losses = one.metrics[one.metrics["agent"] == -1]["value"].to_numpy()
        if losses[-1] < losses[0]:
            other = play(scenario.model_copy(update={"engine": "agents"}))
            demand_same(one, other, "engines cohort and agents")
            return f"fedavg, step {step:g}: loss {losses[0]:.4g} to {losses[-1]:.4g}; engines agree"
        said = f"; with step {step:g} it goes from {losses[0]:.4g} to {losses[-1]:.4g}"
    raise BrokenError(f"the loss does not fall with any step from {STEPS[0]:g} on{said}")


def _asked(model: Model, x: Array, rows: Rows) -> list[Callable[[], Array]]:
    asked = [lambda: model.loss(x, rows), lambda: model.gradient(x, rows)]
    if model.cuts():
        asked.append(lambda: model.clipped(x, rows, 0.5))
    return asked


def _each(stage: ModelStage, x: Array, rows: Rows) -> Array:
    if not stage.of.gives_each():
        raise SkippedError("it has no example_gradients: problem.clip cannot be used")
    return np.asarray(stage.model.example_gradients(x, rows), float)


def _random(stage: ModelStage) -> bool:
    """Whether a gradient depends on the key."""
    x = stage.places(1)[0]
    first, other = (stage.model.gradient(x, stage.rows(key=key)) for key in (11, 12))
    return not np.array_equal(first, other)


LAWS = tuple(
    (law.__name__, law)
    for law in (
        starts,
        finite,
        derivative,
        examples,
        clips,
        rows,
        state,
        together,
        threads,
        random,
        predicts,
        learns,
    )
)
