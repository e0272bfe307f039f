"""The transcript check: what is declared holds on neighbouring data, and what is not is found."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cases import CASES, NOISY, graph, local, one_each, star
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from mutant import mutant

from analysis import fuzz_audits
from desim.engine.signals import Signals
from desim.errors import InputError, RunError
from desim.experiments.audit import of_method
from desim.experiments.audit.neighbours import Neighbours, altered, neighbours, worst_pair
from desim.experiments.audit.pairs import Transcript, noised, play_pair, said_last, unobserved
from desim.experiments.audit.transcript_check import transcript_check
from desim.log.parquet import Tables
from desim.methods import decentralised_sgd, fed_plt, q_dpsgd_1, zcdp_nfl
from desim.methods.shared import declarations
from desim.methods.shared.declarations import Ingredients
from desim.privacy.ledger import mechanisms
from desim.privacy.papers import fed_plt as fed_plt_module
from desim.scenario.build import build
from desim.scenario.load import load

LEAKY, PRIMITIVES = (
    str(Path(__file__).parent / "plugins" / f"{name}.py") for name in ("leaky", "primitives")
)
UNDECLARED = {name for name in CASES if name.startswith("plt")}
UNDECLARED -= {"plt-noisy", "plt-buffer", "plt-calibrated", "plt-budget", "plt-budget-stop"}
UNDECLARED -= {"plt-increments", "plt-langevin", "plt-softmax"}
UNDECLARED |= {"dp-admm", "q2sgd-printed", "q2sgd-plain"}
DISCRETE = (
    "nfl-discrete",
    "gd-discrete",
    "q2sgd",
    "q2sgd-budget",
    "q2sgd-calibrated",
)  # whose D counts the rounding
UNDECLARED |= {name for name in CASES if name.startswith(("tamuna", "led", "5gcs"))}
UNDECLARED -= {"tamuna-noisy", "led-noisy", "led-graph-noisy", "led-graph-budget"}
UNDECLARED |= {name for name in CASES if name.startswith(("fed", "scaffold"))}
UNDECLARED -= {"fed-pd-noisy", "fedlin-noisy", "fedavg-noisy", "fedavg-buffer"}
UNDECLARED -= {"scaffold-noisy", "scaffold-budget", "fedprox-noisy", "feddyn-noisy"}
UNDECLARED -= {"fedasync-weights", "fedbuff-private", "fedbuff-budget"}
ZEROTH = ("d-zoa", "or-zo", "zoo-admm")  # sensitivities of differences, not of models
UNDECLARED |= {name for name in CASES if name.startswith((*ZEROTH, "dvp", "m-admm", "r-admm"))}
UNDECLARED |= {"pp-admm-plain", "ipp-admm-plain"}
UNDECLARED |= {"fm", "gossip-steps"}
LOOSE = {  # beta is left unused, and rows of the norm that is allowed do not reach the clip
    **{name: 0.65 for name in CASES if name.startswith(("pp-", "ipp-"))},
    "fedavg-noisy": 0.9,  # from a shared start no row has full slope along the whole way
    "fedavg-buffer": 0.9,
    **dict.fromkeys(("fedprox-noisy", "feddyn-noisy"), 0.9),
    "fedasync-weights": 0.7,
    **dict.fromkeys(("fedbuff-private", "fedbuff-budget"), 0.3),  # no row turns a change round
    **dict.fromkeys(("fm-laplace", "fm-gaussian", "fm-calibrated", "pflr-star"), 0.9),
    **dict.fromkeys(("fm-box", "pdfc-printed"), 0.8),  # no pair is the worst in a and M at once
    **dict.fromkeys(("pflr", "pflr-rows", "adfc", "adfc-printed"), 0.4),  # nor in c or zbar
    "plt-softmax": 0.4,  # steps on clipped softmax are bounded, not known to contract
    **dict.fromkeys(("pp-admm", "pp-admm-budget"), 0.6),  # slopes of rows of norm 1 reach no clip
    **dict.fromkeys(("ipp-admm", "ipp-admm-all", "ipp-admm-printed", "ipp-admm-budget"), 0.6),
    "fedlin-noisy": 0.05,  # D takes the two gradients of a step as opposite, but they are close
}

BY_ROW = ("qsgd", "q2sgd", "led")  # of which it matters which row differs, as rows are sampled


def built(scenario):
    return build(load(scenario))


def leaky(leak, **keys):
    scenario = {**graph(), "plugins": [LEAKY], "algorithm": {"name": "leaky", "leak": leak, **keys}}
    del scenario["privacy"]
    return built(scenario)


DECLARED = [name for name in CASES if name not in UNDECLARED]


@pytest.mark.thin(6)
@pytest.mark.parametrize(
    "name",
    [*one_each(DECLARED), *(pytest.param(n, marks=pytest.mark.slow) for n in sorted(UNDECLARED))],
)
def test_no_algorithm_moves_more_than_it_declares(name):
    late = name.startswith(("led", "scaffold"))  # their largest step is not among the first
    simulation = built(CASES[name])
    rounds = 12 if late else 6
    if name in UNDECLARED:  # any pair does without noise
        checked = transcript_check(neighbours(simulation), 3)
        assert checked.largest == 0.0
    else:
        row = None if name.startswith(BY_ROW) else 0
        checked = transcript_check(
            worst_pair(unobserved(simulation, rounds), row=row, pinned=True), rounds
        )
        assert checked.largest > (0.8 if name in DISCRETE else LOOSE.get(name, 0.95))
    checked.demand()


@st.composite
def trainings(draw):
    """Noisy local training of any loss with slopes, steps from small ones to ones that diverge."""
    loss = draw(st.sampled_from(["logistic", "squared", {"huber": 0.5}]))
    kind = "classification" if loss == "logistic" else "regression"
    epochs, step = draw(st.integers(1, 8)), draw(st.sampled_from(["per-agent", 0.02, 0.2, 1.0]))
    return star(
        **local(solver="noisy", epochs=epochs, tau=draw(st.sampled_from([0.01, 1.0])), step=step),
        seed=draw(st.integers(0, 9)),
        problem={
            "agents": 3,
            "clip": draw(st.sampled_from([0.1, 1.0, 10.0])),
            "average": draw(st.sampled_from(["mean", "sum"])),
            "loss": loss,
            "data": {
                "source": "synthetic",
                "kind": kind,
                "rows": draw(st.integers(1, 5)),
                "dim": 4,
            },
        },
        stop={"rounds": 4},
    )


@settings(derandomize=True, database=None, deadline=None, max_examples=examples(10))
@given(trainings(), st.integers(0, 2))
@pytest.mark.slow
def test_local_training_contracts_as_it_declares(scenario, agent):
    pair = worst_pair(built(scenario), agent, pinned=True)
    checked = transcript_check(pair)
    checked.demand()
    assert checked.largest > 0.0
    transcript_check(replace(pair, first=pair.second, second=pair.first)).demand()


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", ["plt-noisy", "plt-buffer", "nfl-lossy", "qsgd"])
def test_both_engines_reveal_the_same_on_neighbouring_data(name):
    tables = []
    for engine in ("cohort", "agents"):
        pair = neighbours(built({**CASES[name], "engine": engine}), agent=5, row=5)
        checked = transcript_check(pair)
        checked.demand()
        assert checked.largest > 0.05
        tables.append(checked.rows.sort_values(["what", "agent", "round", "release"]).to_numpy())
    assert np.array_equal(*tables)


def declares_half(module, right, method):
    """The module's method with half of its sensitivity."""
    twin = mutant(module, right, right.replace("2.0", "1.0", 1))
    return getattr(twin, method)


def half_plt():
    right = "reach = 2.0 * problem.clip * problem.scale"
    half = declares_half(fed_plt_module, right, "end_of_steps")

    class Half(fed_plt.FedPLT):
        def __init__(self, ingredients):
            super().__init__(ingredients)
            own = self.local
            own.terms = half(own.problem, own.gamma, own.tau, own.q, own.local.epochs)

    return Half


def half_qsgd():
    right = "whole = 2.0 * self.problem.clip * self.problem.scale[who]"
    half = declares_half(decentralised_sgd, right, "DecentralisedSGD")
    return type("Half", (q_dpsgd_1.QDPSGD1,), {"sensitivity": half.sensitivity})


HALVED = {
    "plt-noisy": half_plt,
    "nfl": lambda: declares_half(
        zcdp_nfl, "slope = 2.0 * self.problem.clip * self.problem.scale[who]", "ZcdpNfl"
    ),
    "qsgd": half_qsgd,
}


def with_method(simulation, method):
    old = simulation.method
    made = method(Ingredients(old.parameters, simulation.settings, old.noise))
    return replace(simulation, method=made)


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", HALVED)
def test_a_halved_sensitivity_is_found(name):
    simulation = with_method(built(CASES[name]), HALVED[name]())
    checked = transcript_check(simulation, pinned=True)
    assert 1.9 < checked.largest < 2.0 + 1e-9
    assert set(checked.violations.what) == {"release"}
    with pytest.raises(RunError, match=r"round \d+, release \d+: the value before noise moves"):
        checked.demand()


def test_laplace_noise_is_held_to_both_norms(monkeypatch):
    simulation = built(CASES["nfl-laplace"])
    pair = worst_pair(simulation)
    wide = transcript_check(pair)
    sensitivity = one_release(pair, wide).declared
    assert sensitivity.max() == pytest.approx(np.sqrt(4.0) * sensitivity.min(), rel=1e-12)
    right = "wide = np.sqrt(dim) * sensitivity"
    narrow = mutant(mechanisms, right, "wide = sensitivity")
    for name in ("Laplace", "Terms"):  # those of the noise at hand, and that engines take
        monkeypatch.setattr(narrow, name, getattr(mechanisms, name))
    monkeypatch.setattr(declarations, "terms", narrow.terms)
    wrong = transcript_check(simulation)
    assert len(wrong.violations)


def test_the_noise_inside_a_training_is_compared_with_itself():
    """Coupled steps move by 1 + chi + chi^2 times what one does, chi of the data at hand."""
    pair = worst_pair(built(CASES["plt-noisy"]), pinned=True)
    own, local = one_release(pair, transcript_check(pair)), pair.first.method.local
    problem, gamma = pair.first.problem, local.gamma[pair.agent]
    ends = (one[pair.agent] + local.q for one in problem.moduli)
    chi = max(abs(1 - gamma * end) for end in ends)
    wanted = gamma * 2.0 * problem.clip * problem.scale[pair.agent] * (1.0 + chi + chi**2)
    np.testing.assert_allclose(own.declared, wanted, rtol=1e-12)
    assert wanted != pytest.approx(local.terms.sensitivity[pair.agent], rel=0.05)


def one_release(pair, checked):
    rows = checked.rows
    return rows[(rows.what == "release") & (rows.agent == pair.agent)]


def test_an_own_model_without_noise_carries_every_gradient_on():
    """As in Q-DPSGD-2: the sensitivity is D_t = (1 - e) D_{t-1} + 2 K step, up to factor 1/e."""
    fair = transcript_check(leaky("none"))
    fair.demand()
    assert fair.largest == pytest.approx(1.0, abs=1e-9)
    checked = transcript_check(leaky("state", mixing=0.25))
    own = one_release(checked, checked)
    grown = (1.0 - 0.75 ** np.arange(1, 13)) / 0.25
    np.testing.assert_allclose(own.ratio, grown, rtol=1e-9)
    assert own.violated.sum() == 11


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("leak", "what", "says"),
    [
        ("message", "message", "its message is no function of what it released"),
        ("silence", "traffic", "times, sizes or silences depend on data"),
        ("time", "traffic", "times, sizes or silences depend on data"),
        ("scale", "traffic", "times, sizes or silences depend on data"),
    ],
)
def test_what_goes_out_beside_the_releases_is_found(leak, what, says):
    checked = transcript_check(leaky(leak))
    assert what in set(checked.violations.what)
    with pytest.raises(RunError, match=says):
        checked.demand()


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("way", "most"), [("answer", 1.0), ("both", 1.0), ("same", 1.0), ("perturbation", 0.0)]
)
def test_answers_and_noise_drawn_ahead_are_held_to_what_they_declare(way, most):
    """Clipped to 3, means over 6 rows move by 1, which the plugin declares."""
    scenario = {**graph(), "plugins": [PRIMITIVES], "algorithm": {"name": "primitives", "way": way}}
    del scenario["privacy"]
    scenario["problem"]["clip"] = 3.0
    checked = transcript_check(built(scenario), 3)
    checked.demand()
    assert checked.largest == pytest.approx(most, abs=1e-9)
    if most:
        scenario["problem"]["clip"] = 3.3
        checked = transcript_check(built(scenario), 3)
        assert set(checked.violations.what) == {"release"}


STAR_LEAKS = {
    "        return np.asarray(reply)": "        us.z = us.z + np.add.reduceat("
    "self.problem.A * self.problem.b[:, None], self.problem.start[:-1])[us.who]\n"
    "        return np.asarray(us.z)",
    "        return np.asarray(reply)\n": "        us.x = self.local.silent_trainer(us.who, x, "
    "2.0 * y - z, us.address, self.local.epochs[: len(us.who)], np.uint64(1))\n"
    "        return np.asarray(reply)\n",
}


@pytest.mark.thin(2)
@pytest.mark.parametrize("right", STAR_LEAKS)
def test_a_client_that_keeps_or_adds_what_is_not_released_is_found(right):
    twin = mutant(fed_plt, right, STAR_LEAKS[right])
    scenario = star(**local(**NOISY), problem={"clip": 1.0})
    pair = worst_pair(built(scenario), pinned=True)
    transcript_check(pair).demand()
    wrong = replace(
        pair,
        first=with_method(pair.first, twin.FedPLT),
        second=with_method(pair.second, twin.FedPLT),
    )
    assert len(transcript_check(wrong).violations)


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", ["plt-noisy", "nfl", "qsgd", "plt-buffer"])
def test_a_pair_knows_the_mean_of_what_went_out(name):
    pair = worst_pair(built(CASES[name]), pinned=True)
    one, again, two = (play_pair(pair.first, pair.second, seed, pair.agent) for seed in (1, 1, 2))
    assert np.array_equal(one.output, again.output)
    assert np.abs(one.output - two.output).max() > 0.0
    moved = np.linalg.norm(one.other - one.mean, axis=1)
    assert moved.max() > 0.0
    assert np.array_equal(one.release, two.release)
    same = play_pair(pair.first, pair.first, 1, pair.agent)
    assert np.array_equal(same.mean, same.other)
    if name in ("nfl", "qsgd"):
        assert (moved <= one.sensitivity * (1.0 + 1e-9)).all()
        noise = np.concatenate([(p.output - p.mean) / p.scale[:, None] for p in (one, two)])
        assert abs(noise.mean()) < 4.0 / np.sqrt(noise.size)
        assert abs((noise**2).mean() - 1.0) < 4.0 * np.sqrt(2.0 / noise.size)


def test_the_noise_has_a_seed_of_its_own():
    simulation = unobserved(built(CASES["qsgd"]))
    logs, models = [], []
    for seed in (None, simulation.settings.seed, 99):
        tables = Tables()
        outcome = noised(simulation, seed).play(tables)
        logs.append(tables.read("events"))
        models.append(outcome.state["x"])
    assert logs[0].equals(logs[1])
    assert logs[0].equals(logs[2])
    assert np.array_equal(models[0], models[1])
    assert np.abs(models[0] - models[2]).min() > 0.0


def test_a_replay_on_the_same_data_changes_nothing():
    for name in ("plt-noisy", "nfl", "qsgd-lossy"):
        simulation, first = unobserved(built(CASES[name])), Transcript()
        played = simulation.play(Tables(), listeners=[first])
        second = Transcript(first)
        replayed = noised(simulation, 7).play(Tables(), listeners=[second])
        assert not second.apart
        assert all(np.array_equal(played.state[key], replayed.state[key]) for key in played.state)
        fresh = noised(simulation, 7).play(Tables())
        assert np.abs(fresh.state["x"] - played.state["x"]).max() > 0.0


def test_a_neighbour_differs_in_one_record_and_has_its_own_steps():
    simulation = built(CASES["plt-noisy"])
    problem = simulation.problem
    record = 100.0 * np.ones(problem.A.shape[1]), -problem.b[problem.start[2] + 3]
    pinned = altered(simulation, 2, 3, record, problem.moduli)
    assert np.array_equal(pinned.method.local.gamma, simulation.method.local.gamma)
    other = neighbours(simulation, 2, 3, record).second
    changed = np.flatnonzero((other.problem.A != problem.A).any(1) | (other.problem.b != problem.b))
    assert changed.tolist() == [problem.start[2] + 3]
    assert (other.method.local.gamma < simulation.method.local.gamma).all()


def test_bad_pairs_are_refused():
    simulation = built(CASES["nfl"])
    with pytest.raises(InputError, match="agent: found 8; allowed: 0 to 7"):
        neighbours(simulation, agent=8)
    with pytest.raises(InputError, match="row: found 6; allowed: 0 to 5"):
        neighbours(simulation, row=6)
    endless = built(graph(stop={"metric": {"error": 0.05}}))
    with pytest.raises(InputError, match="stop: found metric alone"):
        transcript_check(neighbours(endless))
    transcript_check(neighbours(endless), rounds=3).demand()


# Runs that end at a time ------------------------------------------------------------------------

SHORT = {"stop": {"time": "0.32 s"}}  # while agents are on their way
TIMED = {
    **{name: CASES[name] for name in ("nfl", "nfl-late", "p-admm", "pp-admm", "led-graph-noisy")},
    **{name: CASES[name] for name in ("dsgd-adaptive", "ad-psgd", "dvp", "nfl-budget", "pr-admm")},
    **{name: CASES[name] for name in ("plt-buffer", "fedavg-noisy", "plt-budget", "gd")},
}


@pytest.mark.thin(4)
@pytest.mark.parametrize("name", TIMED)
def test_what_agents_compute_after_the_end_is_no_message(name):
    """It reaches nobody: no audit compares it, and all that one scores is in the ledger."""
    tables = []
    for engine in ("cohort", "agents"):
        scenario = {**TIMED[name], "stop": {"time": "0.2 s"}, "engine": engine}
        pair = neighbours(built(scenario), agent=0, row=5)
        checked, order = transcript_check(pair), ["what", "agent", "round", "release"]
        checked.demand()
        tables.append(checked.rows.sort_values(order).to_numpy())
        scored, ledger = play_pair(pair.first, pair.second, 1, 0), Tables()
        assert name == "dvp" or not scored.apart  # noise on an objective has no mean
        pair.first.play(ledger)
        releases = ledger.read("releases")
        assert set(scored.release) <= set(releases.release[releases.agent == 0])
    assert np.array_equal(*tables)


@pytest.mark.thin(2)
@pytest.mark.parametrize("engine", ["cohort", "agents"])
@pytest.mark.parametrize("leak", ["message", "silence", "time", "scale"])
def test_what_goes_out_before_the_end_is_found(leak, engine):
    """Also the last message, which is under way when the time is over."""
    scenario = {**graph(), "plugins": [LEAKY], "algorithm": {"name": "leaky", "leak": leak}}
    del scenario["privacy"]
    simulation = built({**scenario, **SHORT, "engine": engine})
    pair = worst_pair(replace(simulation, engine="cohort"))  # which finds it much sooner
    sides = (replace(one, engine=engine) for one in (pair.first, pair.second))
    checked = transcript_check(Neighbours(*sides, pair.agent, pair.row))
    assert len(checked.violations)
    if leak != "message":
        return
    tables = Tables()
    simulation.play(tables)
    events = tables.read("events")
    sent = events[(events.kind == "send") & (events.agent == checked.agent)]
    found = checked.violations
    assert set(found["round"][found.what == "message"]) == set(sent["round"])
    last = sent[sent["round"] == sent["round"].max()]
    reached = events[(events.kind == "deliver") & (events.agent == checked.agent)]
    assert len(last) > (reached["round"] == last["round"].iloc[0]).sum()


@pytest.mark.parametrize("kept", [True, False])
def test_a_twin_that_takes_all_messages_or_none_for_sent_is_wrong(kept, monkeypatch):
    """All: an honest method is refuted. None: one that tells what it has not released is not."""

    right = Signals.sent

    def sent(self, who, *rest):
        return right(self, who, *rest[:4], np.full(len(who), kept))

    monkeypatch.setattr(Signals, "sent", sent)
    scenario = {**graph(), "plugins": [LEAKY], "algorithm": {"name": "leaky", "leak": "message"}}
    del scenario["privacy"]
    for wrong in (CASES["gd"], CASES["led-graph-noisy"], scenario):
        pair = neighbours(built({**wrong, "stop": {"time": "0.2 s"}}), row=5)
        assert ("message" in set(transcript_check(pair).violations.what)) == kept


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", ["nfl", "led-graph-noisy", "gd", "nfl-budget"])
def test_the_last_models_are_those_that_went_out(name):
    """Neither what agents compute after the end, nor a null of one whose budget is spent."""
    for time in ("0.2 s", "0.6 s", "2 s"):
        found = []
        for engine in ("cohort", "agents"):
            simulation = built({**CASES[name], "stop": {"time": time}, "engine": engine})
            stage = of_method.Stage(simulation, simulation, 0, "model")
            found.append(of_method.numbers_shown(stage, 0, 3))
            past = Transcript()
            noised(simulation, 3).play(Tables(), listeners=[past])
            said = said_last(past)
            heard = {
                int(i): batch.payload[r]
                for batch in past.messages
                for r, i in enumerate(batch.who)
                if batch.payload[r].any()
            }
            assert said.keys() == heard.keys()
            assert all(np.array_equal(said[i], heard[i]) for i in said)
        assert np.array_equal(*found)


@pytest.mark.slow
def test_no_random_scenario_of_an_honest_method_is_refuted():
    outcomes = [fuzz_audits.tried(number, 1) for number in range(20)]
    assert [fault for _, fault in outcomes if fault] == []
    assert sum(how in ("time", "rounds") for how, _ in outcomes) > 7
