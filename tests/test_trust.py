"""A coordinator that is trusted: what it sums up, what it adds, and which rows say so."""

import contextlib
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import matplotlib.pyplot as pyplot
import numpy as np
import pandas as pd
import pytest
from cases import merged
from mutant import mutant
from test_resume import killed, unlike

import desim
from desim.engine import play, trusted
from desim.engine.requests import Replies
from desim.errors import InputError
from desim.experiments.audit.of_method import audit
from desim.interface.plots import curves
from desim.log.parquet import Tables
from desim.numerics.keys import seed_word
from desim.privacy.accounting import prices
from desim.privacy.accounting.gaussian import epsilon_of, mu_of
from desim.privacy.accounting.prices import poisson_gaussian
from desim.privacy.ledger.ledger import add_normal
from desim.runs.joint import joint
from desim.runs.privacy import statement
from desim.scenario import check, trusting
from desim.scenario.build import build
from desim.scenario.checks import trust_consistency
from desim.scenario.load import load

STEP, EPOCHS, CLIP, Z = 0.05, 3, 0.4, 1.5
ADAPTIVE = {"start": 0.1, "quantile": 0.6, "rate": 0.5, "noise": 2.0}
CARRIED = [
    {"deadline": "30 ms", "late": "carry"},
    {"quorum": 2, "late": "carry"},
    {"buffer": 3, "late": "carry"},
    {"buffer": 1, "late": "carry"},
]


def scenario(**changes):
    """FedAvg of squared losses with a coordinator that is trusted for agents."""
    return merged(
        {
            "name": "trusting",
            "seed": 4,
            "problem": {
                "agents": 6,
                "data": {"source": "synthetic", "kind": "regression", "rows": 8, "dim": 3},
                "loss": "squared",
                "average": "mean",
            },
            "algorithm": {"name": "fedavg", "local": {"epochs": EPOCHS, "step": STEP}},
            "privacy": {
                "unit": "agent", "trust": "coordinator", "clip": CLIP,
                "noise": {"multiplier": Z}, "relation": "add-or-remove-one",
            },
            "compute": {"speed": {"exponential": "100 /s"}},
            "observe": {"metrics": ["loss"]},
            "engine": "cohort",
            "stop": {"rounds": 12},
        },
        changes,
    )  # fmt: skip


def noise(seed, round_, dim):
    """What was added to the sum of a round, of deviation 1."""
    place = seed_word(seed), np.array([-1]), np.array([round_]), 0
    return add_normal(*place, np.ones(1), np.ones(1, bool), np.zeros((1, dim)))[0]


def shortened(change, clip):
    """A vector of norm `clip` at most."""
    length = np.linalg.norm(change)
    return change if length <= clip else change * (clip / length)


def loop(problem, seed, drawn, number, clip=CLIP, adaptive=None, wrong=""):
    """Models (rounds + 1, dim) of DP-FedAvg, agent by agent; drawn: who is in each round."""
    ends, dim = problem.start, problem.dim
    rows = [slice(*pair) for pair in pairwise(ends)]
    x = np.zeros(dim)
    models = [x]
    for k, who in enumerate(drawn, 1):
        total, short = np.zeros(dim), 0
        for i in who:
            y, A, b = x.copy(), problem.A[rows[i]], problem.b[rows[i]]
            for _ in range(EPOCHS):
                y = y - STEP * 2 * A.T @ (A @ y - b) / len(A)
            short += np.linalg.norm(y - x) <= clip
            total = total + (y - x if wrong == "unclipped" else shortened(y - x, clip))
        widened = Z if adaptive is None else (Z**-2 - (2 * adaptive["noise"]) ** -2) ** -0.5
        sd = clip * (Z if wrong == "plain" else widened) * (len(who) if wrong == "local" else 1)
        total = total + sd * noise(seed, k, dim)
        x = x + total / (max(len(who), 1) if wrong == "came" else number)
        models.append(x)
        if adaptive is not None:
            place = seed_word(seed), np.array([-1]), np.array([k]), 1 << 23
            zeros, ones = np.zeros((1, 1)), np.ones(1, bool)
            count = add_normal(*place, np.array([adaptive["noise"]]), ones, zeros)[0, 0]
            share = (short - len(who) / 2 + count) / number + 0.5
            clip = clip * np.exp(-adaptive["rate"] * (share - adaptive["quantile"]))
    return np.array(models)


def same(one, other):
    """Whether models agree but for rounding."""
    return bool(np.abs(one - other).max() < 1e-11)


def drawn(made):
    """Who is invited to each round of a simulation."""
    who = made.settings.participation
    return [who.draw(k) for k in range(1, int(made.settings.rounds) + 1)]


@pytest.mark.parametrize("part", ["all", {"bernoulli": 0.5}, {"uniform": 2}])
@pytest.mark.parametrize("clip", [CLIP, ADAPTIVE])
def test_models_are_those_of_a_loop_over_agents(part, clip):
    written = scenario(participation=part)
    written["privacy"]["clip"] = clip
    made = build(load(written))
    adaptive = clip if isinstance(clip, dict) else None
    number = {"all": 6.0, "bernoulli": 3.0, "uniform": 2.0}[
        next(iter(part), "") if isinstance(part, dict) else part
    ]
    start = clip["start"] if adaptive else clip
    naive = loop(made.problem, 4, drawn(made), number, start, adaptive)
    found = desim.run(written).model
    assert same(found, naive)
    wrongs = ["unclipped", "local"] + ["came"] * (part == {"bernoulli": 0.5})
    for wrong in [*wrongs, *["plain"] * bool(adaptive)]:
        other = loop(made.problem, 4, drawn(made), number, start, adaptive, wrong)
        assert not same(found, other), wrong


METHODS = [
    {"name": "fedavg"},
    {"name": "fedavg", "server": {"adam": {"rate": 0.1}}},
    {"name": "fedprox"},
    {"name": "fedbuff"},
    {"name": "feddyn"},
    {"name": "scaffold"},
    {"name": "fed-plt", "rho": 1.0, "send": "increments"},
]


@pytest.mark.parametrize("algorithm", METHODS)
def test_engines_and_batches_give_the_same_bits(algorithm):
    algorithm = {**algorithm, "local": {"epochs": EPOCHS, "step": STEP}}
    for policy in ("all", *CARRIED):
        written = scenario(policy=policy, stop={"rounds": 6})
        written["algorithm"] = algorithm
        one = desim.run(written)
        other = desim.run({**written, "engine": "agents"})
        assert (one.model == other.model).all()
        assert one.releases.equals(other.releases)
        made = build(load(written))
        settings = replace(made.settings, batch_limit=2)
        alone = replace(made, settings=settings, method=remade(made, settings)).play(Tables())
        assert (one.model == alone.model).all()


def remade(made, settings):
    """The method of a simulation with other settings."""
    from desim.methods.shared.declarations import Ingredients

    return type(made.method)(Ingredients(made.method.parameters, settings, None))


def test_compiled_rounds_make_room():
    written = scenario(engine="auto", stop={"rounds": 3})
    assert desim.run(written).manifest["engine"] == "cohort"
    with pytest.raises(InputError, match="trusted coordinator sums up"):
        desim.run({**written, "engine": "compiled"})


@contextlib.contextmanager
def heard(monkeypatch):
    """Lists of (round, agents, payload, rounds of the calls) that sums are made of."""
    found, plain = [], trusted.Trusted.total

    def total(self, hub, replies):
        found.append((hub.round, replies.who.copy(), replies.payload.copy(), replies.round.copy()))
        return plain(self, hub, replies)

    with monkeypatch.context() as patched:
        patched.setattr(trusted.Trusted, "total", total)
        yield found


@pytest.mark.parametrize("engine", ["cohort", "agents"])
@pytest.mark.parametrize("policy", ["all", *CARRIED])
def test_an_agent_is_charged_for_the_sums_that_hold_a_reply_of_it(policy, engine, monkeypatch):
    written = scenario(
        policy=policy, engine=engine, participation={"schedule": [[0, 1, 2, 4], [2, 3, 4]]}
    )
    with heard(monkeypatch) as sums:
        run = desim.run(written)
    number = np.bincount(np.concatenate([who for _, who, _, _ in sums]), minlength=6)
    account = run.account(view="participants")
    assert account.final == pytest.approx(epsilon_of(np.sqrt(number) / Z, 1e-5), rel=1e-12)
    replaced = run.account(view="final-model", relation="agent")
    assert replaced.final == pytest.approx(epsilon_of(2 * np.sqrt(number) / Z, 1e-5), rel=1e-12)
    rows = run.releases
    said = np.bincount(rows["agent"][rows["mechanism"] == "none"], minlength=6)
    assert (said >= number).all()
    if policy != "all":
        wrong = epsilon_of(np.sqrt(said) / Z, 1e-5)
        stale = sum((asked != round_).sum() for round_, _, _, asked in sums)
        assert (rows["agent"][rows["mechanism"] == "sum"] >= 0).sum() == stale
        assert stale > 0 or not np.allclose(account.final, wrong)
    assert (rows["agent"] == -1).sum() == len(sums)
    assert np.isinf(run.account(view="coordinator").final[number > 0]).all()


def test_noise_that_falls_is_charged_round_by_round(monkeypatch):
    written = scenario(participation={"schedule": [[0, 1], [1, 2], [3]]})
    written["privacy"]["noise"] = {"sigma": 0.7, "decay": 0.8}
    with heard(monkeypatch) as sums:
        run = desim.run(written)
    spent = np.zeros(6)
    for round_, who, _, _ in sums:
        spent[who] += (CLIP / (0.7 * 0.8 ** ((round_ - 1) / 2))) ** 2
    assert run.account().final == pytest.approx(epsilon_of(np.sqrt(spent), 1e-5), rel=1e-10)


def replies(rows, weight):
    """A collection of replies rows (n, dim) that weigh weight (n,)."""
    who = np.arange(len(rows))
    return Replies(who, rows, np.ones(len(rows), np.int64), np.asarray(weight, float))


def shortens(module, rows, weight):
    """The norms of what is added up."""
    one = SimpleNamespace(clip=1.0)
    found = module.Trusted.shortened(one, replies(rows, weight), rows)
    return np.linalg.norm(found, axis=1)


def test_no_weight_and_no_number_lengthens_a_reply():
    rows = np.array([[3.0, 4.0], [0.3, 0.4], [np.inf, 0.0], [np.nan, 1.0], [1e200, 1e200]])
    rows = np.concatenate([rows, [[0.3, 0.4]] * 2])
    weight = [2.5, 4.0, 1.0, 1.0, 0.5, -9.0, np.nan]
    found = shortens(trusted, rows, weight)
    assert (found <= 1.0).all()
    assert found == pytest.approx([1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0])
    assert shortens(trusted, rows[:2], [0.5, 0.5]) == pytest.approx([0.5, 0.25])
    assert shortens(trusted, rows[-2:-1], weight[-2:-1]) == pytest.approx([1.0])
    right = "not (np.abs(replies.weight) <= 1.0).all()"
    for wrong in ("False", "(replies.weight > 1.0).any()"):
        twin = mutant(trusted, right, wrong)
        assert shortens(twin, rows[-2:-1], weight[-2:-1]).max() > 1.0, wrong


def ended(algorithm, trust, row, mutated=None):
    """Outcome and tables of four rounds in which an agent's first label is `row`."""
    written = scenario(stop={"rounds": 4}, privacy={"trust": trust, "unit": "agent"})
    written["algorithm"] = {**algorithm, "local": {"epochs": EPOCHS, "step": STEP}}
    made = build(load(written))
    made.problem.b[made.problem.start[2]] = row
    if mutated is not None:
        made = mutated.Simulation(made.method, made.settings, made.observation, made.engine, "")
    outcome = made.play(tables := Tables())
    return outcome, [tables.read(name) for name in ("events", "releases")]


@pytest.mark.parametrize("trust", ["coordinator", "secure-sum"])
@pytest.mark.parametrize("algorithm", METHODS[-3:], ids=lambda one: one["name"])
def test_no_record_ends_a_run_whose_sums_have_noise(algorithm, trust):
    """An agent whose own model is lost goes on, and what it replies counts as nothing."""
    usual, logs = ended(algorithm, trust, 0.5)
    assert np.isfinite(usual.state["x"]).all()
    for row in (np.nan, -np.inf, 1e308)[: 1 if trust == "secure-sum" else 3]:
        outcome, others = ended(algorithm, trust, row)
        assert (outcome.status, outcome.reason) == (usual.status, usual.reason)
        assert all(one.equals(other) for one, other in zip(logs, others, strict=True))
        assert np.isfinite(outcome.model).all()
        assert outcome.warnings == usual.warnings
        assert np.flatnonzero(~np.isfinite(outcome.state["x"]).all(1)).tolist() == [2]
    wrong = mutant(play, "settings.trust is not None  # sums", "False  # sums")
    assert ended(algorithm, trust, np.nan, wrong)[0].status == "failed"


def test_a_lost_model_ends_a_run_whose_replies_are_seen():
    """Without trust the coordinator sees it, as it did."""
    written = scenario(stop={"rounds": 4})
    written["algorithm"] = {"name": "scaffold", "local": {"epochs": EPOCHS, "step": STEP}}
    del written["privacy"]
    made = build(load(written))
    made.problem.b[made.problem.start[2]] = np.nan
    assert "the model of agent 2 is not finite in round 1" in made.play(Tables()).reason


def test_nobody_came_and_the_noise_stays():
    written = scenario(participation={"schedule": [[], [1]]}, stop={"rounds": 3})
    run = desim.run(written)
    number = 0.5
    step = CLIP * Z * noise(4, 1, 3) / max(number, 1.0)
    assert run.model[1] == pytest.approx(step, abs=1e-13)


def test_the_old_relation_is_a_unit():
    written = scenario(stop={"rounds": 3})
    one = dict(written["privacy"], relation="replace-one")
    other = dict(written["privacy"], relation="agent")
    other.pop("unit")
    first, second = (desim.run({**written, "privacy": own}) for own in (one, other))
    assert first.account(relation=None).relation == second.account().relation == "agent"
    assert first.account().unit == "agent"
    assert (first.account().final == second.account().final).all()
    assert first.epsilon().attrs["unit"] == "agent"
    local = scenario(policy="all", stop={"rounds": 3})
    local["algorithm"] = {"name": "fedbuff", "clip": 0.5, "local": {"epochs": EPOCHS, "step": STEP}}
    new = {"unit": "agent", "noise": {"sigma": 1.0}}
    old = {"relation": "agent", "noise": {"sigma": 1.0}}
    both = [desim.run({**local, "privacy": own}).account() for own in (new, old)]
    assert both[0].worst == both[1].worst < np.inf


@pytest.mark.parametrize("part", ["all", {"bernoulli": 0.3}, {"uniform": 2}])
@pytest.mark.parametrize("relation", ["replace-one", "add-or-remove-one"])
@pytest.mark.parametrize("clip", [CLIP, {**ADAPTIVE, "noise": 12.0}])
def test_a_target_is_what_all_rounds_cost(part, relation, clip):
    written = scenario(participation=part)
    terms = {"epsilon": 2.5, "delta": 1e-3}
    written["privacy"] |= {"target": terms, "relation": relation, "clip": clip}
    written["privacy"].pop("noise")
    run = desim.run(written)
    amplified = part == {"bernoulli": 0.3} and relation != "replace-one"
    amplified |= part == {"uniform": 2} and relation == "replace-one"
    worst = run.account().worst
    assert worst <= 2.5
    if amplified or part == "all":
        assert worst > 2.5 * (1 - 1e-5)
    assert (desim.run(run.scenario).model == run.model).all()
    less = run.scenario.written()
    less["privacy"]["noise"]["multiplier"] *= 0.99
    with pytest.raises(InputError, match=r"multiplier.*privacy\.target gives"):
        desim.run(less)


@pytest.mark.parametrize("engine", ["cohort", "agents"])
def test_a_killed_run_remembers_its_clip(engine, tmp_path, monkeypatch):
    written = scenario(engine=engine, stop={"rounds": 40}, policy={"buffer": 2, "late": "carry"})
    written["privacy"]["clip"] = ADAPTIVE
    whole = desim.run(written)
    left = killed(written, tmp_path / "a", monkeypatch, 3, rows=40)
    assert left.status == "interrupted"
    assert unlike(whole, desim.resume(tmp_path / "a")) == []


def terms(**changes):
    """The section privacy with other keys; None takes one away."""
    found = scenario()["privacy"] | changes
    return {key: value for key, value in found.items() if value is not None}


FALLING = {"multiplier": 1.0, "decay": 0.5}
REFUSED = [
    ({"privacy": terms(clip=None)}, "privacy.clip: missing"),
    ({"privacy": terms(clip=-1)}, "privacy.clip"),
    ({"privacy": terms(clip={"start": 1.0, "rate": 0.2})}, "found rate; allowed: a number"),
    ({"privacy": terms(noise=None)}, "privacy.noise: missing"),
    ({"privacy": terms(noise={"multiplier": 1.0, "sigma": 1.0})}, "multiplier and sigma"),
    ({"privacy": terms(noise={"kind": "laplace", "sigma": 1.0})}, "found laplace"),
    ({"privacy": terms(noise={"phi": 1.0, "growth": 0.5})}, "found schedule"),
    ({"privacy": terms(clip=ADAPTIVE, noise={"sigma": 1.0})}, "found sigma with a clip"),
    ({"privacy": terms(clip=ADAPTIVE, noise={"multiplier": 4.0})}, "half of the multiplier, 2"),
    ({"privacy": terms(clip=ADAPTIVE, noise=FALLING)}, "found noise that changes"),
    ({"privacy": terms(noise={})}, "found no multiplier; allowed: {multiplier, ...}, {sigma, ...}"),
    ({"privacy": terms(noise={"correlated": "tree"})}, "allowed: {multiplier, ...}, or privacy."),
    ({"privacy": terms(noise={"correlated": "tree", "sigma": 1.0})}, "correlated: multiplier"),
    ({"privacy": terms(noise={"correlated": "tree", "iteration": 1.0})}, "and iteration; allowed"),
    ({"privacy": terms(noise={"correlated": "tree", "iteration": 2.0})}, "and iteration; allowed"),
    ({"privacy": terms(trust=None, clip=None, noise={"correlated": "tree"},
                       target={"epsilon": 1.0, "delta": 1e-5})}, "correlated: found without trust"),
    ({"privacy": terms(budget=3.0, trust="secure-sum")}, "privacy.budget: found with trust: sec"),
    ({"privacy": terms(budget=3.0, noise=FALLING), "policy": CARRIED[0]}, "carried to later sums"),
    ({"privacy": terms(budget=1e-3)}, "privacy.budget: found 0.001, but the first release of agen"),
    ({"privacy": terms(trust=None)}, "privacy.clip: found without trust: coordinator"),
    ({"privacy": terms(trust=None, clip=None)}, "privacy.noise.multiplier: found without"),
    ({"privacy": terms(trust=None, clip=None, noise={"sigma": 1.0})}, "whether it is there"),
    ({"privacy": terms(unit="record", relation="agent")}, "found record with relation agent"),
    ({"privacy": terms(view="eavesdropper", noise=None, target={"epsilon": 1.0, "delta": 1e-5})},
     "without noise; allowed: participants"),
    ({"algorithm": {"name": "fedlin"}}, "reads single replies; allowed: local, or fed-plt, fedavg"),
    ({"algorithm": {"name": "fed-plt", "rho": 1.0}}, "algorithm.send: found z"),
    ({"algorithm": {"name": "fedavg", "local": {"solver": "noisy"}}}, "agents add no noise"),
    ({"algorithm": {"name": "dsgd", "alpha": 0.1}, "network": {"topology": "ring"}}, "none here"),
    ({"participation": {"choose": "power-of-choice", "invite": 2}}, "found power-of-choice with"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_what_makes_no_sense_is_refused_before_the_run(changes, words):
    with pytest.raises(InputError) as refused:
        build(load({**scenario(), **changes}))
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"privacy": terms(trust="coordinater")}, "did you mean 'coordinator'"),
        ({"privacy": terms(noise={"multiplier": 1.0, "correlated": "tree"}),
          "participation": {"uniform": 2, "separation": 0}}, "a whole number >= 1"),
    ],
)  # fmt: skip
def test_a_key_that_others_follow_is_the_only_thing_wrong(wrong, words, monkeypatch):
    written = {**scenario(), **wrong}

    def found():
        with pytest.raises(InputError) as refused:
            load(written)
        return refused.value.problems

    (only,) = found()
    assert words in only
    monkeypatch.setattr(check, "FOLLOWS", {})  # a wrong twin
    assert len(found()) > 1


LEVEL = "np.maximum(rows.max(axis=1), -1e300)"


def test_noise_beyond_numbers_has_an_account():
    for multiplier, worst in ((1e-308, np.inf), (1e30, 0.0), (1e308, 0.0)):
        written = scenario(participation={"bernoulli": 0.5}, stop={"rounds": 2})
        written["privacy"] |= {"noise": {"multiplier": multiplier}}
        with np.errstate(over="ignore"):
            assert planned_of(written).worst == worst
    assert trusted.Quantile(0.5, 0.2, 4.0).widened(1e-308) == 1e-308
    assert np.isfinite(poisson_gaussian(1.0, 1e-308)).all()
    nothing, wrong = np.full((1, 2), -np.inf), mutant(prices, LEVEL, "rows.max(axis=1)")
    assert prices._log_sum(nothing) < -1e299
    with np.errstate(all="ignore"):
        assert np.isnan(wrong._log_sum(nothing)).all()


def test_agents_that_spend_the_same_are_a_line_however_many(monkeypatch):
    run = desim.run(scenario(participation={"bernoulli": 0.5}, stop={"rounds": 3}))
    for of, lines in ((curves, 1), (mutant(curves, " and len(_alike(curves)) > 1:", ":"), 0)):
        monkeypatch.setattr(of, "LINES", 2)
        axes = of.epsilon(run)
        assert len([one for one in axes.lines if len(one.get_xdata()) > 2]) == lines
        pyplot.close(axes.figure)


def test_correlated_noise_is_for_its_rounds(tmp_path):
    written = scenario(participation={"uniform": 2, "separation": 2}, stop={"rounds": 4})
    written["privacy"] |= {"noise": {"multiplier": 1.0, "correlated": {"banded": 2}}}
    run = desim.run(written, out=tmp_path / "a")
    with pytest.raises(InputError, match="correlated noise is for the planned end"):
        desim.resume(tmp_path / "a", {"stop.rounds": 6})
    with pytest.raises(InputError, match="found trust: coordinator; allowed: a run"):
        run.pairwise()
    written["privacy"]["noise"] = {"multiplier": 1.0}
    desim.run(written, out=tmp_path / "b")
    assert desim.resume(tmp_path / "b", {"stop.rounds": 6}).manifest["rounds"] == 6


@pytest.mark.parametrize("trust", ["coordinator", "secure-sum"])
def test_a_log_of_rounds_has_every_reply(trust, monkeypatch):
    schedule = {"schedule": [[0, 1, 2, 4], [2, 3, 4]]}
    written = scenario(privacy={"trust": trust}, participation=schedule, stop={"rounds": 4})
    run, less = desim.run(written), desim.run({**written, "log": "rounds"})
    assert less.releases.equals(run.releases)
    assert (less.account().final == run.account().final).all()
    monkeypatch.setattr(trusted.Trusted, "__init__", mutant(
        trusted, "world.ledger.keep()", "world.ledger.seed"
    ).Trusted.__init__)  # fmt: skip
    wrong = desim.run({**written, "log": "rounds"})
    assert not wrong.account().final.max() == run.account().final.max()


BUDGET = 7.0
PARTS = [({"schedule": [[0, 1, 2, 4], [2, 3, 4]]}, "all"), ({"bernoulli": 0.6}, "all"),
         ("all", {"buffer": 3, "late": "carry"})]  # fmt: skip


@pytest.mark.parametrize(("part", "policy"), PARTS)
@pytest.mark.parametrize("clip", [CLIP, ADAPTIVE])
def test_a_budget_ends_the_part_of_agents_whose_sums_have_spent_it(part, policy, clip, monkeypatch):
    changes = {"participation": part, "policy": policy, "stop": {"rounds": 16}}
    written = scenario(privacy={"budget": BUDGET}, **changes)
    written["privacy"]["clip"] = clip
    most = int((mu_of(BUDGET, 1e-5) * Z) ** 2)  # sums, of one left out
    assert 2 < most < 8
    with heard(monkeypatch) as sums:
        run = desim.run(written)
    number = np.bincount(np.concatenate([who for _, who, _, _ in sums]), minlength=6)
    assert number.max() == most
    account = run.account()
    assert account.worst <= BUDGET < epsilon_of(np.sqrt(most + 1) / Z, 1e-5)
    assert account.method == "exact GDP"
    other = desim.run({**written, "engine": "agents"})
    assert (run.model == other.model).all()
    assert run.releases.equals(other.releases)
    wrong = mutant(trusted, "scale * every, np.nan", "2.0 * scale * every, np.nan")
    monkeypatch.setattr(trusted.Trust, "of_each", wrong.Trust.of_each)
    assert desim.run(written).account().worst > BUDGET


def test_a_reply_that_is_carried_to_a_dearer_sum_has_no_budget(monkeypatch):
    """Paid when it is called for, at what that round's sum costs, it is in one with less noise."""
    written = scenario(privacy={"budget": 12.0}, policy=CARRIED[2], stop={"rounds": 14})
    written["privacy"]["noise"] = {"multiplier": Z, "decay": 0.8}
    with pytest.raises(InputError, match="noise that changes from round to round"):
        desim.run(written)
    monkeypatch.setattr(trust_consistency, "_budget_holds_late", lambda *_: ())
    assert desim.run(written).account().worst > 12.0
    assert desim.run({**written, "policy": "all"}).account().worst <= 12.0


def test_a_spent_budget_may_end_the_run():
    terms = {"budget": BUDGET, "on_exhausted": "stop"}
    run = desim.run(scenario(privacy=terms, stop={"rounds": 16}))
    most = int((mu_of(BUDGET, 1e-5) * Z) ** 2)
    assert run.manifest["rounds"] == most
    assert "privacy.budget: agent 0 would spend" in run.manifest["reason"]


SLOW = {"link": {"latency": "0.3 s", "bandwidth": "10 kbit/s"}}


@pytest.mark.parametrize("trust", ["coordinator", "secure-sum"])
def test_sums_are_told_again_under_another_network(trust):
    written = scenario(privacy={"trust": trust}, stop={"rounds": 3}, participation={"uniform": 4})
    run = desim.run(written)
    slower, fresh = desim.retime(run, network=SLOW), desim.run({**written, "network": SLOW})
    assert (slower.model == fresh.model).all()
    for name in ("events", "releases", "metrics"):
        assert getattr(slower, name).equals(getattr(fresh, name)), name
        assert not getattr(slower, name).equals(getattr(run, name)), name
    assert slower.account().worst == fresh.account().worst < np.inf


def test_a_clip_that_follows_replies_is_not_told_again():
    run = desim.run(scenario(privacy={"clip": ADAPTIVE}, stop={"rounds": 2}))
    with pytest.raises(InputError, match=r"privacy\.clip: found a quantile; it follows what"):
        desim.retime(run, network=SLOW)


def test_a_record_less_is_not_said_to_move_a_sum_half_as_far(monkeypatch):
    run = desim.run(scenario(privacy={"unit": "record"}, stop={"rounds": 3}))
    one, other = (run.account(relation=name) for name in ("replace-one", "add-or-remove-one"))
    assert one.worst == other.worst
    assert not any("half as far" in text for text in other.assumptions)
    assert "replaced by another" in one.assumptions[0]


def planned_of(written):
    """The account of all planned rounds."""
    settings, privacy = build(load(written)).settings, load(written).privacy
    return trusting.planned(
        settings, settings.trust, privacy.delta, privacy.view, privacy.neighbours
    )


@pytest.mark.parametrize("epsilon", [1e-308, 1e12])
def test_targets_beyond_reason_are_met(epsilon):
    written = scenario(participation={"bernoulli": 0.5}, stop={"rounds": 2})
    written["privacy"] |= {"noise": {}, "target": {"epsilon": epsilon, "delta": 1e-5}}
    assert planned_of(written).worst <= epsilon


def test_without_noise_there_is_no_privacy():
    run = desim.run(scenario(privacy={**terms(), "noise": {"multiplier": 0}}, stop={"rounds": 2}))
    assert np.isinf(run.account().worst)
    assert any("without noise" in flag for flag in run.account().flags)


@pytest.mark.parametrize("part", ["all", {"bernoulli": 0.5}])
def test_an_end_that_data_decide_costs_all_rounds(part):
    changes = {"participation": part, "observe": {"metrics": ["accuracy"]}}
    written = scenario(stop={"rounds": 30}, **changes)
    data = {"source": "synthetic", "kind": "classification", "rows": 8, "dim": 3, "test": 0.25}
    written["problem"] |= {"data": data, "loss": "logistic"}
    whole = desim.run(written)
    ended = desim.run({**written, "stop": {"rounds": 30, "metric": {"accuracy": 0.1}}})
    assert ended.manifest["rounds"] < 30
    expected = epsilon_of(np.sqrt(30) / Z, 1e-5) if part == "all" else whole.account().worst
    assert ended.account().final == pytest.approx(np.full(6, expected), rel=1e-9)
    assert any("all 30 rounds" in flag for flag in ended.account().flags)
    assert np.isinf(ended.account(view="coordinator").worst)


def test_what_knows_no_sums_says_so(tmp_path):
    written = scenario(stop={"rounds": 2})
    runs = [desim.run({**written, "seed": seed}) for seed in (1, 2)]
    with pytest.raises(InputError, match="trusted with sums, of which no joint account"):
        joint(runs)
    with pytest.raises(InputError, match="trust: found coordinator; allowed in an audit: local"):
        audit(load(written), runs=20)


def test_what_is_published_does_not_tell_who_took_part(tmp_path):
    written = scenario(participation={"bernoulli": 0.5}, stop={"rounds": 4})
    run = desim.run(written, out=tmp_path / "run")
    for view, agents in (("participants", {-1}), ("eavesdropper", set(range(-1, 6)))):
        desim.export(run, "public", tmp_path / view, view=view, anyway=view == "eavesdropper")
        rows = pd.read_csv(tmp_path / view / "releases.csv")
        assert set(rows["agent"]) <= agents
        assert (rows["agent"] == -1).sum() == 4
        assert ("time" in rows) == (view == "eavesdropper")  # slow agents make rounds long
    for one in (tmp_path / "participants").glob("*.[mj]*"):
        assert "no amplification" not in one.read_text()
    assert "no amplification" in str(statement(run).table["flags"].iloc[0])
    assert not (tmp_path / "participants" / "events.csv").exists() or not len(
        pd.read_csv(tmp_path / "participants" / "events.csv")
    )


@pytest.mark.parametrize("codec", [{"uplink": {"top_k": 1}}, {"uplink": {"quantise": {"bits": 4}}}])
def test_messages_that_are_coded_are_clipped_as_they_come(codec, monkeypatch):
    with heard(monkeypatch) as sums:
        run = desim.run(scenario(codec=codec, stop={"rounds": 4}))
    model = np.zeros(3)
    for round_, _, payload, _ in sums:
        total = sum(shortened(row, CLIP) for row in payload)
        model = model + (total + CLIP * Z * noise(4, round_, 3)) / 6
    assert same(run.model[-1], model)
