"""I1 for the compiled engine: its rounds are those of the cohort engine, to the last bit."""

import inspect
from dataclasses import replace
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
from cases import CASES, merged, one_each
from mutant import mutant
from test_engines import differences

import desim
from desim.engine import play
from desim.engine.compiled import otherwise, rounds
from desim.engine.compiled import star as star_compiled
from desim.errors import InputError, RunError
from desim.methods import fedasync, fedavg, feddyn, five_gcs, scaffold
from desim.methods.shared import federated
from desim.network.conditions.codec import rounded
from desim.network.conditions.participation import Bernoulli, UniformSubset
from desim.numerics import plain
from desim.problem.kernels import codecs
from desim.problem.kernels import formulas as kernel_formulas
from desim.problem.kernels.codecs import narrowed, pairwise
from desim.scenario.build import check

METHODS = (
    "fed-plt", "fedavg", "fedprox", "fedbuff", "fedasync", "feddyn", "scaffold", "fed-pd",
    "5gcs",
)  # fmt: skip
WITHOUT = (
    "plt-exact", "plt-softmax", "plt-budget", "plt-budget-stop",
    "fedbuff-budget", "scaffold-budget",
)  # fmt: skip


def run(name, **overrides):
    return desim.run(CASES[name], overrides=overrides)


def chosen(name):
    """The engine that a case runs on by itself."""
    return check(desim.load(CASES[name])).engine


COMPILED = [
    name
    for name, case in CASES.items()
    if case["algorithm"]["name"] in METHODS and not {"churn", "codec"} & set(case)
    if name not in WITHOUT
]


@pytest.mark.parametrize("name", one_each(COMPILED))
def test_compiled_rounds_agree_to_the_last_bit(name):
    compiled, cohort = run(name), run(name, engine="cohort")
    assert compiled.manifest["engine"] == "compiled"
    assert differences(compiled, cohort) == []


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"policy": "each", "stop.rounds": 500},
        {"policy": {"buffer": 3}},
        {"problem.agents": 40, "stop.rounds": 200},
        {"observe": {"metrics": ["loss"]}, "stop.metric": {"loss": 1e9}},
        {"participation": "all", "policy": {"quorum": 3, "late": "carry"}},
    ],
    ids=str,
)
def test_many_rounds_in_one_call(changes):
    scenario = {**CASES["plt-sgd-half"], "observe": {"metrics": []}}
    runs = [desim.run(scenario, overrides={"engine": e, **changes}) for e in ("compiled", "cohort")]
    assert differences(*runs) == []


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("plt-deadline", 'policy.late == "discard"', 'policy.late != "discard"'),
        ("plt-sgd-half", "np.arange(first, first + most)", "np.full(most, first)"),
        ("plt-all", "float(times[k]), first + k", "float(times[k]), first"),
        ("fedavg-weights", "tuple(policy.staleness)", "(0, 0.0, 0.0)"),
        ("plt-time", "settings.horizon, most)", "2.0 * settings.horizon, most)"),
        (
            "plt-all",
            "self.program.formulas, *clocked",
            "self.program.formulas._replace(weight=0.1), *clocked",
        ),
    ],
)
def test_wrong_compiled_rounds_are_noticed(monkeypatch, name, right, wrong):
    broken, changes = mutant(star_compiled, right, wrong), {}
    if "weight" in wrong:
        changes = {"problem.regularizer": {"l1": 0.5}}
    cohort = run(name, engine="cohort", **changes)
    monkeypatch.setitem(play.ENGINES, ("coordinator", "compiled"), broken.play)
    assert differences(run(name, engine="compiled", **changes), cohort)


def rounds_unlike(drawing, module):
    """Rounds of blocks, which may end early, whose agents are not those that `drawing` draws."""
    world = SimpleNamespace(settings=SimpleNamespace(participation=drawing))
    nothing, unlike, number = np.zeros(1, np.int64), 0, 0
    engine = SimpleNamespace(world=world, drawn=(0, nothing, nothing, 0), agents=7)
    for first in (1, 3, 8, 10, 11, 12, 25):
        most, (_, pointer, who, begin) = module.Engine._drawn(engine, first, 10)
        unlike += not 0 < most <= 10
        for k in range(first, first + most):
            here = who[pointer[k - begin] : pointer[k - begin + 1]]
            unlike, number = unlike + (not np.array_equal(here, drawing.draw(k))), number + 1
    assert number > 30
    return unlike


@pytest.mark.parametrize("drawing", [Bernoulli(7, 3, 0.4), UniformSubset(7, 3, 3)], ids=str)
def test_who_participates_is_drawn_once_for_many_rounds(drawing):
    assert rounds_unlike(drawing, star_compiled) == 0
    for right, wrong in (
        ("first >= begin + len(pointer) - 1", "first > begin + len(pointer) - 1"),
        ("np.arange(first, first + most)", "np.arange(1, 1 + most)"),
    ):
        assert rounds_unlike(drawing, mutant(star_compiled, right, wrong))


STAR = {**CASES["plt-all"], "observe": {"metrics": []}, "stop": {"rounds": 25}}
FORMULAS = {
    "fedasync": {"name": "fedasync", "rho": 0.1},
    "feddyn": {"name": "feddyn", "alpha": 0.5},
    "changes": {"name": "feddyn", "alpha": 5.0, "reply": "change"},
    "scaffold": {"name": "scaffold", "global_step": 0.3},
    "5gcs": {"name": "5gcs", "tau": 0.2},
    "yogi": {"name": "scaffold", "server": {"yogi": {"rate": 0.1}}},
    "served": {"name": "fedprox", "server": {"yogi": {"rate": 0.1}}},
    "momentum": {"name": "fedavg", "global_step": 0.3, "server": {"momentum": 0.5}},
    "adam": {"name": "fedprox", "server": {"adam": {"rate": 0.1}}},
    "adagrad": {"name": "fedbuff", "server": {"adagrad": {"rate": 0.1}}},
}
WAITS = {
    "each": {"policy": "each"},
    "carried": {"policy": {"deadline": "90 ms", "late": "carry"}},
    "discarded": {"policy": {"deadline": "90 ms"}, "codec": "float32"},
    "quorum": {"policy": {"quorum": 3, "late": "carry"}, "participation": {"uniform": 5}},
    "buffer": {"policy": {"buffer": 2}, "codec": {"downlink": "float16"}},
    "some": {"policy": "all", "participation": {"bernoulli": 0.5}, "codec": "float16"},
}
STALE = {"staleness": {"polynomial": 0.5}}


def compared(monkeypatch, algorithm, changes, engine=None):
    """What differs between compiled rounds as plain Python, or others, and the cohort engine's."""
    scenario = merged(STAR, {"algorithm": None})
    scenario = {**scenario, "algorithm": {**algorithm, "local": {"epochs": 2}}, **changes}
    cohort = desim.run(scenario, overrides={"engine": "cohort"})
    with monkeypatch.context() as patched:
        patched.setenv("DESIM_COMPILE", "never")
        if engine is not None:
            patched.setitem(play.ENGINES, ("coordinator", "compiled"), engine)
        return differences(desim.run(scenario, overrides={"engine": "compiled"}), cohort)


@pytest.mark.thin(3)
@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_agree_however_long_is_waited(name, wait, monkeypatch):
    assert compared(monkeypatch, FORMULAS[name], WAITS[wait]) == []


@pytest.mark.parametrize("policy", ["each", {"buffer": 9}, {"deadline": "0.1 s", "late": "carry"}])
def test_weights_are_summed_as_numpy_does(policy, monkeypatch):
    waits = {"policy": policy} if policy == "each" else {"policy": {**policy, **STALE}}
    many = merged(STAR["problem"], {"agents": 30})
    assert compared(monkeypatch, FORMULAS["fedasync"], {**waits, "problem": many}) == []


@pytest.mark.parametrize(
    ("name", "wait", "right", "wrong"),
    [
        ("scaffold", "each", "coder if down.lossy else down.bits(1)", "32"),
        ("feddyn", "some", "return codec.bits(1)", "return 64"),
        ("feddyn", "some", "coder if down.lossy else down.bits(1)", "64"),
        ("scaffold", "discarded", "down.bits(width), up.bits(width)", "64 * width, 64 * width"),
        ("scaffold", "each", "shift[:m]", "shift[:0]"),
        ("5gcs", "quorum", "sloped(bench[4], who, trained, data)", "pass"),
        ("stale", "buffer", "weights[r] = s", "weights[r] = 1.0"),
        ("scaffold", "each", "put_part(reply, j, answer)", "reply[j] = answer[0]"),
        ("scaffold", "each", "*self.program.beside", "*(2.0 * b for b in self.program.beside)"),
        ("momentum", "each", "np.array(memory)", "1.0 + np.array(memory)"),
    ],
)
def test_wrong_rounds_of_formulas_are_noticed(name, wait, right, wrong, monkeypatch):
    waits = WAITS[wait] if name != "stale" else {"policy": {"buffer": 2, **STALE}}
    algorithm = FORMULAS["fedasync" if name == "stale" else name]
    if right in inspect.getsource(rounds):
        monkeypatch.setattr(star_compiled, "advance", mutant(rounds, right, wrong).advance)
        assert compared(monkeypatch, algorithm, waits)
    else:
        assert compared(monkeypatch, algorithm, waits, mutant(star_compiled, right, wrong).play)


@pytest.mark.parametrize(
    ("name", "wait", "module", "right", "wrong"),
    [
        ("fedasync", "each", fedasync, "- weights * x", "- replies * x"),
        ("served", "quorum", federated, "+ (1.0 - own.beta1) * mean", "+ own.beta1 * mean"),
        ("adam", "buffer", federated, "(np.sqrt(v) + own.tau)", "np.sqrt(v + own.tau)"),
        ("feddyn", "carried", feddyn, "if self.shares", "if n < 0"),
        ("5gcs", "each", five_gcs, "x, v + step", "x, v"),
        ("scaffold", "quorum", scaffold, "memory[0], memory[3]", "memory[0], memory[1]"),
    ],
)
def test_wrong_formulas_are_noticed(name, wait, module, right, wrong, monkeypatch):
    """Of the compiled engine alone, though both have the same ones."""
    broken = mutant(module, right, wrong)
    own = broken.Served if hasattr(broken, "Served") else broken.Formulas

    def play_wrongly(program, world):
        wrong = own(*program.formulas)
        return star_compiled.play(replace(program, formulas=wrong), world)

    waits = WAITS[wait]
    if name == "fedasync":
        waits = {"policy": {"buffer": 2, **STALE}}
    assert compared(monkeypatch, FORMULAS[name], waits, play_wrongly)


def test_a_number_of_the_authors_own_is_no_weight(monkeypatch):
    """As the program in Python, which gives `aggregate` no fourth argument."""

    @kernel_formulas.formulas
    class Own(NamedTuple):
        eta: float
        begin, finish = fedavg.Formulas.begin, fedavg.Formulas.finish
        model = fedavg.Formulas.model

        def aggregate(self, x, total, replies, power=2.0):
            return x + power * self.eta * total / max(replies, 1)

    def made(self, ingredients, plain=fedavg.FedAvg.__init__):
        plain(self, ingredients)
        self.formulas = Own(0.3)

    monkeypatch.setattr(fedavg.FedAvg, "__init__", made)
    stale = {"policy": {"buffer": 2, **STALE}}
    assert compared(monkeypatch, {"name": "fedavg"}, stale) == []
    wrong = mutant(kernel_formulas, "one.default is one.empty", "one is not None")
    assert (kernel_formulas.weighs(Own), wrong.weighs(Own)) == (False, True)


@pytest.mark.parametrize(
    ("right", "wrong", "what"),
    [
        ("return (x,), y - x", "return (x, x), y - x", "finish: found"),
        ("return (x,), y - x", "return (), y - x", "finish: found"),
        ("return (x,), y - x", "return y - x", "finish: found"),
        ("return x, x", "return (x,)", "begin: found"),
        ("return x, x", "return x", "begin: found"),
    ],
)
def test_formulas_that_do_not_fit_end_a_run_in_words(right, wrong, what, monkeypatch):
    broken = mutant(fedavg, right, wrong).Formulas

    def play_wrongly(program, world):
        return star_compiled.play(replace(program, formulas=broken(*program.formulas)), world)

    with pytest.raises(RunError, match=f"@formulas of Formulas: {what}"):
        compared(monkeypatch, {"name": "fedavg"}, {}, play_wrongly)


def test_rounds_without_code_are_played_by_the_cohort_engine(monkeypatch):
    whole, endless, seen = run("fedavg-each"), run("plt-time"), []
    for name in ("compiled", "cohort"):
        there = "coordinator", name
        real = play.ENGINES[there]
        monkeypatch.setitem(
            play.ENGINES, there, lambda *p, real=real, name=name: seen.append(name) or real(*p)
        )
    monkeypatch.setattr(otherwise, "absent", lambda *_: True)
    found = run("fedavg-each")
    assert (found.manifest["engine"], differences(found, whole)) == ("compiled", [])
    assert differences(run("plt-time"), endless) == []
    assert seen == ["cohort", "compiled"]  # nobody knows how long the second takes
    for tree, other in (({"desk": {}}, False), ({}, True)):
        world = SimpleNamespace(keeper=SimpleNamespace(found={"engine": tree}))
        assert otherwise._sooner_otherwise(None, world) == other  # as it began


def test_what_has_no_code_is_told_before_it_is_called(monkeypatch):
    class Unknown(NamedTuple):
        number: float = 1.0

    monkeypatch.setattr(plain, "seconds", 0.0)
    monkeypatch.setattr(plain, "_earlier", 0.0)
    known = pairwise
    known(np.ones(3), np.empty((64, 2)))
    for when, missing in (("later", True), ("never", False), ("at-once", False)):
        monkeypatch.setenv("DESIM_COMPILE", when)
        assert plain.absent(known, Unknown()) == missing
        assert not plain.absent(known, np.ones(3))
    with plain.counted():
        sum(range(10**6))
    assert plain.seconds > 0.0


def test_numbers_are_rounded_as_numpy_does():
    rng = np.random.default_rng(3)
    x = rng.normal(size=4000) * 10.0 ** rng.integers(-9, 7, 4000)
    ties = (np.arange(1.0, 2049.0) + 0.5)[:, None] * 2.0 ** np.array([-24, -25, -14, 0, 5])
    near = [0.0, -0.0, np.inf, -np.inf, np.nan, 65519.99, 65520.0, -65520.0, 2.0**-25, -(2.0**-26)]
    x = np.concatenate([x, ties.ravel(), near, [1e39, -1e39, 3.5e38, 6e-46]])
    for kind, bits in (("float32", 32), ("float16", 16)):
        row = x.copy()
        narrowed(bits, row)
        assert row.tobytes() == rounded(x, kind).tobytes()
    assert row.tobytes() != rounded(x, "float32").tobytes()


def test_sums_are_those_of_numpy():
    rng, room = np.random.default_rng(4), np.empty((64, 2))
    sizes = [*range(1, 300), 1000, 1024, 1032, 4099, 16384, 100_001]
    wrong = mutant(codecs, "n // 2 - n // 2 % 8", "n // 2")
    unlike = 0
    for n in sizes:
        values = rng.uniform(size=n)
        assert pairwise(values, room) == np.add.reduce(values)
        unlike += n < 5000 and wrong.pairwise(values, room) != np.add.reduce(values)
    assert unlike


@pytest.mark.parametrize("name", [*WITHOUT, "nfl-lossy", "r-admm", "tamuna"])
def test_what_has_no_compiled_rounds_runs_without_them(name):
    assert chosen(name) in ("cohort", "agents")
    with pytest.raises(InputError, match=r"engine: found compiled.*allowed"):
        run(name, engine="compiled")
