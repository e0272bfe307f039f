"""FedProx, FedBuff, FedAsync, FedDyn, server optimisers: naive twins, wrong ones, laws, words."""

import naive.fedasync
import naive.fedbuff
import naive.feddyn
import numpy as np
import pytest
from cases import CASES, FEDASYNC, FEDAVG, FEDBUFF, FEDDYN, FEDPROX, NOISY, SCAFFOLD, merged, star
from mutant import mutant
from test_against_naive import PLAYS, SEED, SLOW, TOLERANCE, Rows, gap, issued_in
from test_averaging_methods import training_of

import desim
from analysis.reproductions import fedbuff_seconds
from desim.engine.requests import Replies
from desim.errors import InputError
from desim.methods.shared import federated
from desim.network.conditions import policy
from desim.network.timeline import waiting_rule
from desim.network.timeline.waiting_rule import HINGE, POLYNOMIAL, Staleness
from desim.privacy.accounting import prices as pricing
from desim.privacy.accounting.gaussian import epsilon_of
from desim.problem.kernels import sums
from desim.problem.kernels.sums import clipped_rows
from desim.scenario.build import build, check

TWINS = {"fedasync": naive.fedasync, "feddyn": naive.feddyn}
ADAM = {"rate": 0.05, "beta1": 0.8, "beta2": 0.9, "tau": 0.01}
ADAGRAD = {"rate": 0.05, "beta1": 0.3, "tau": 0.1}
POLY = {"staleness": {"polynomial": 0.7}}
HINGED = {"staleness": {"hinge": {"a": 2.0, "b": 1.0}}}
EARLY = {"staleness": {"hinge": {"a": 2.0, "b": 0.5}}}
HALF = {"participation": {"bernoulli": 0.5}}
SGD = {"solver": "sgd", "epochs": 3, "batch": 2}
CLIPPED = {"loss": "squared", "clip": 0.8}
AGAINST = {
    "fedprox": {"mu": 0.7, "local": {"epochs": 4}, "init": True},
    "fedprox-exact": {"mu": 0.7, "problem": {"loss": "squared"}, "local": {"solver": "exact"}},
    "fedprox-late": {"mu": 0.3, "policy": {"quorum": 2, "late": "carry", **POLY}, "local": SGD},
    "fedbuff": {"policy": {"buffer": 2, **POLY}, "global_step": 0.7, "local": SGD},
    "fedbuff-hinge": {"policy": {"buffer": 1, **HINGED}, "global_step": 0.3, "rounds": 30},
    "fedbuff-clipped": {"policy": {"buffer": 2, **POLY}, "clip": 0.4, "sigma": 0.2, "local": SGD},
    "fedavg-momentum": {"server": {"momentum": 0.6}, "global_step": 0.5, "init": True},
    "fedavg-adam": {"server": {"adam": ADAM}, "init": True, **HALF},
    "fedavg-yogi": {"server": {"yogi": ADAM}, "policy": {"deadline": "60 ms"}, "local": SGD},
    "fedavg-adagrad": {"server": {"adagrad": ADAGRAD}, "participation": {"schedule": [[0, 3], []]}},
    "fedasync": {"alpha": 0.4, "rho": 0.2, "policy": "each", "rounds": 30, "local": {"epochs": 3}},
    "fedasync-poly": {"alpha": 0.6, "rho": 0.0, "policy": {"buffer": 1, **POLY}, "local": SGD},
    "fedasync-some": {"alpha": 0.9, "rho": 0.5, "policy": {"buffer": 2, **POLY}, "init": True},
    "fedasync-hinge": {"alpha": 0.9, "rho": 0.5, "policy": {"buffer": 2, **EARLY}, "rounds": 20},
    "fedasync-all": {"alpha": 0.9, "rho": 0.5, "policy": "all", **HALF},
    "feddyn": {"alpha": 0.8, "local": {"epochs": 3}, "init": True},
    "feddyn-two": {"alpha": 0.8, "participation": {"uniform": 2}, "local": SGD},
    "feddyn-some": {"alpha": 0.8, "participation": {"schedule": [[0, 3], [], [1]]}},
    "feddyn-late": {"alpha": 0.5, "policy": {"quorum": 2, "late": "carry"}, "local": {"epochs": 2}},
    "feddyn-late-change": {"alpha": 0.5, "reply": "change", "policy": {"buffer": 2}, "local": SGD},
    "feddyn-late-model": {"alpha": 0.5, "reply": "model", "policy": {"buffer": 2}, "local": SGD},
    "feddyn-exact": {"alpha": 0.4, "problem": {"loss": "squared"}, "local": {"solver": "exact"}},
}  # fmt: skip
OWN = ("mu", "reply", "alpha", "rho", "global_step", "clip", "server", "local")
BASE = {"policy": "all", "participation": "all", "rounds": 12, "local": {"epochs": 2}}


def name_of(label):
    return label.split("-")[0]


def scenario_of(folder, rows, label, case):
    algorithm = {"name": name_of(label), **{key: case[key] for key in OWN if key in case}}
    noise = {"privacy": {"noise": {"sigma": case["sigma"]}}} if "sigma" in case else {}
    return {
        "seed": SEED,
        "problem": {
            **rows.problem(folder),
            **{"loss": "logistic", **case.get("problem", {})},
            "regularizer": {"l2": 2.0},
        },
        "algorithm": algorithm | ({"init": rows.init(folder)} if case.get("init") else {}),
        "participation": case["participation"],
        "policy": case["policy"],
        **noise,
        "observe": {"metrics": [], "iterates": True},
        "stop": {"rounds": case["rounds"]},
    }


def expected(run, rows, label, case, twin):
    """The twin's models, and the agents' states after the last round."""
    name, (loss,) = name_of(label), {**{"loss": "logistic"}, **case.get("problem", {})}.values()
    q = case.get({"fedprox": "mu", "fedasync": "rho", "feddyn": "alpha"}.get(name), 0.0)
    settings = {"loss": loss, "average": "mean", "l2": 2.0, "rounds": case["rounds"]}
    training = training_of(rows, {**settings, "local": case["local"]}, q)
    x0 = rows.x0 if case.get("init") else np.zeros((rows.agents, rows.dim))
    place = rows.A, rows.b, x0, issued_in(run)
    if name == "feddyn":
        own = {"alpha": case["alpha"], "reply": case.get("reply", "share")}
        late = case["policy"] != "all"  # in step all three are the same
        return twin.feddyn(*place, **training, **own if late else {"alpha": own["alpha"]})
    s = case["policy"].get("staleness", {}) if isinstance(case["policy"], dict) else {}
    ((kind, own),) = s.items() or [("constant", ())]
    numbers = tuple(own.values()) if isinstance(own, dict) else (own,) if s else ()
    training["staleness"] = kind, *numbers
    if name == "fedasync":
        return twin.fedasync(*place, alpha=case["alpha"], rho=case["rho"], **training)
    noise = training["normals"][:, :, 0]
    ((kind, own),) = case.get("server", {"none": None}).items()
    return twin.fedbuff(
        *place, global_step=case.get("global_step", 1.0), mu=q, C=case.get("clip", np.inf),
        sigma=case.get("sigma", 0.0), noise=noise, server=(kind, own), **training,
    )  # fmt: skip


def difference(folder, label, setting, twin=None, seed=1):
    """Largest difference of a method's models and states from its twin's, and the run."""
    case = {**BASE, **AGAINST[label]}
    rows = Rows(seed, "squared" if "problem" in case else "logistic", (5, 4, 6, 8))
    run = desim.run(merged(scenario_of(folder, rows, label, case), setting))
    twin = twin or TWINS.get(name_of(label), naive.fedbuff)
    models, *states = expected(run, rows, label, case, twin)
    gaps = [gap(run.model, models)]
    for name, wanted in zip(("x", "slope"), states, strict=False):
        gaps.append(gap(run.state[name], wanted))
    return max(gaps), run


@pytest.mark.thin(3)
@pytest.mark.parametrize("label", AGAINST)
def test_the_iterates_are_those_of_the_twin(tmp_path, label):
    for seed, setting in enumerate(PLAYS):
        found, run = difference(tmp_path, label, setting, seed=seed)
        assert found < TOLERANCE
    if "late" in label or name_of(label) == "fedbuff":
        issued = issued_in(run)
        assert (issued < np.arange(len(issued))[:, None])[issued >= 0].any()


MUTANTS = [
    ("fedprox", "shift=-mu * x[i]", "shift=mu * x[i]"),
    ("fedprox-exact", "q=mu", "q=0.0"),
    ("fedprox-late", "s_of(k - call", "s_of(0 * k"),
    ("fedbuff", "** -a", "** a"),
    ("fedbuff", "s_of(k - call", "s_of(k - call + 1"),
    ("fedbuff", "sum(changes) / len(changes)", "sum(changes) / N"),
    ("fedbuff-hinge", "if t <= b", "if t <= b + 1"),
    ("fedbuff-hinge", "(a * (t - b) + 1.0)", "(a * t + 1.0)"),
    ("fedbuff-clipped", "x * (C / norm)", "x * (2 * C / norm)"),
    ("fedbuff-clipped", "if norm <= C", "if norm <= 2 * C"),
    ("fedbuff-clipped", "if norm <= C", "if False"),
    ("fedbuff-clipped", "sigma * noise[call]", "sigma * noise[k]"),
    ("fedavg-momentum", "m = own * m + delta", "m = own * m + (1 - own) * delta"),
    ("fedavg-adam", 'own["beta2"] * v + (1', 'own["beta2"] * v + (2'),
    ("fedavg-adam", 'own["tau"] ** 2', "0.0"),
    ("fedavg-yogi", "np.sign(v - delta**2)", "0.9 * np.sign(v - delta**2)"),
    ("fedavg-adagrad", "v = v + delta**2", "v = delta**2"),
    ("fedavg-adagrad", "model.append(model[k])", "model.append(model[k] + m)"),
    ("fedasync", "(1 - alpha_t) * model[k]", "(1 - alpha_t) * model[tau]"),
    ("fedasync-poly", "s_of(k - tau", "s_of(0 * k"),
    ("fedasync-some", "np.mean(results, axis=0)", "results[-1]"),
    ("fedasync-some", "alpha * s_of(k - tau, *staleness)", "alpha"),
    ("fedasync-hinge", "alpha * s_of(k - tau, *staleness)", "alpha"),
    ("fedasync", "q=rho", "q=0.0"),
    ("feddyn", "- h / alpha", "+ h / alpha"),
    ("feddyn-two", "alpha / m * sum", "alpha / len(active) * sum"),
    ("feddyn-late", 'reply == "share"', "False"),
    ("feddyn-late-change", "theta[t] + theta_k[k] - sent", "theta_k[k]"),
    ("feddyn-late-model", 'reply == "model"', "False"),
    ("feddyn-exact", "shift=-grad_k[k]", "shift=grad_k[k]"),
]  # fmt: skip


@pytest.mark.thin(3)
@pytest.mark.parametrize(("label", "right", "wrong"), MUTANTS)
def test_another_method_is_noticed(tmp_path, label, right, wrong):
    twin = mutant(TWINS.get(name_of(label), naive.fedbuff), right, wrong)
    assert difference(tmp_path, label, {**SLOW, "engine": "cohort"}, twin)[0] > 1e-5


# Limits ------------------------------------------------------------------------------------------


def model_of(algorithm, **changes):
    return desim.run(star(algorithm=algorithm, **changes)).model


def test_without_memory_an_optimiser_is_none():
    still = {**FEDAVG, "global_step": 0.7, "server": {"momentum": 0.0}}
    plain = model_of({**FEDAVG, "global_step": 0.7})
    assert model_of(still).tobytes() == plain.tobytes()
    moved = model_of({**still, "server": {"momentum": 0.1}})
    assert gap(moved, plain) > 1e-4


def test_fedbuff_is_fedavg_with_its_policy():
    waits = {"policy": {"buffer": 2, **POLY}}
    one, other = (model_of({**FEDBUFF, "name": name}, **waits) for name in ("fedbuff", "fedavg"))
    assert one.tobytes() == other.tobytes()
    assert gap(model_of(FEDBUFF, policy={"buffer": 2}), one) > 1e-4


def test_fedasync_that_takes_all_over_at_once_is_fedavg():
    whole = {**FEDASYNC, "alpha": 1.0, "rho": 0.0}
    assert gap(model_of(whole, policy="all"), model_of(FEDAVG)) < TOLERANCE
    assert gap(model_of({**whole, "rho": 0.1}, policy="all"), model_of(FEDAVG)) > 1e-4


def test_feddyn_comes_to_the_optimum_and_fedavg_near_it():
    ends = {"stop": {"rounds": 150}, "participation": {"uniform": 4}}
    errors = {
        name: desim.run(star(algorithm=one, **ends)).metrics.query("metric == 'error'")
        for name, one in (("feddyn", FEDDYN), ("fedavg", FEDAVG), ("fedprox", FEDPROX))
    }
    last = {name: rows.value.iloc[-1] for name, rows in errors.items()}
    assert last["feddyn"] < 1e-14
    assert min(last["fedavg"], last["fedprox"]) > 1e-5


WILD = {"policy": "each", "stop": {"rounds": 200}, "observe": {"metrics": ["error"]}}


def test_late_replies_of_feddyn_take_their_share_of_the_step():
    """Whole changes diverge, and models as printed end beside the optimum."""
    problem = {"loss": "squared"}
    ends = {}
    for reply in ("share", "change", "model"):
        made = {"name": "feddyn", "alpha": 1.0, "local": {"solver": "exact"}, "reply": reply}
        run = desim.run(star(algorithm=made, problem=problem, **WILD))
        rows = run.curve("error").value
        ends[reply] = rows.iloc[-1] / rows.iloc[0]
    assert ends["share"] < 1e-2
    assert ends["model"] > 1e-2
    assert ends["change"] > 1e6


# Weights -----------------------------------------------------------------------------------------

RULES = {
    Staleness(): lambda t: 1.0,
    Staleness(POLYNOMIAL, 0.5): lambda t: 1.0 / np.sqrt(1.0 + t),
    Staleness(POLYNOMIAL, 2.0): lambda t: 1.0 / (1.0 + t) ** 2,
    Staleness(HINGE, 10.0, 4.0): lambda t: 1.0 if t <= 4 else 1.0 / (10.0 * (t - 4) + 1.0),
}


def far_from_rules(module):
    """Largest relative difference of the weights from the paper's formulas."""
    t = np.array([0, 1, 2, 4, 5, 6, 100, 10**6])
    found = [module.Staleness(*rule).weights(t) for rule in RULES]
    wanted = [[s(float(one)) for one in t] for s in RULES.values()]
    assert all(row[0] == 1.0 for row in found)
    return np.max(np.abs(np.array(found) / wanted - 1.0))


def test_weights_are_the_papers():
    assert far_from_rules(waiting_rule) < 1e-14


@pytest.mark.parametrize(("right", "wrong"), [("-a * log_", "-2.0 * a * log_"), ("(t - b)", "t")])
def test_other_weights_are_noticed(right, wrong):
    source = mutant(waiting_rule, f"{right}(t + 1.0)" if "log" in right else f"a * {right} + 1.0)",
                    f"{wrong}(t + 1.0)" if "log" in right else f"a * {wrong} + 1.0)")  # fmt: skip
    assert far_from_rules(source) > 0.01


def test_weighed_replies():
    who, payload = np.arange(3), np.arange(6.0).reshape(3, 2)
    plain = Replies(who, payload, who, np.ones(3))
    assert plain.weighed is payload
    half = Replies(who, payload, who, np.array([1.0, 0.5, 0.0]))
    assert half.weighed.tolist() == [[0, 1], [1, 1.5], [0, 0]]


def test_policies_that_a_scenario_leaves_out():
    def waits(name):
        agents = {"problem": {"agents": 12}}
        scenario = star(algorithm={"name": name}, **agents)
        return check(desim.load(scenario)).settings.policy, desim.load(scenario).written()["policy"]

    assert waits("fedasync") == (policy.Policy("buffer", 1, "carry"), "each")
    found, written = waits("fedbuff")
    assert found == policy.Policy("buffer", 10, "carry", staleness=Staleness(POLYNOMIAL, 0.5))
    assert written == {"buffer": 10, "late": "carry", "staleness": {"polynomial": 0.5}}
    assert waits("fedprox") == (policy.Policy(), "all")


# Clipping and privacy ----------------------------------------------------------------------------


def test_clipped_rows_are_bounded_whatever_they_were():
    rows = np.random.default_rng(3).normal(size=(50, 7)) * np.logspace(-3, 3, 50)[:, None]
    rows[:3] = [[np.nan] * 7, [np.inf] + [0.0] * 6, [1e200] * 7]
    out = clipped_rows(rows, 0.7)
    norms, before = np.linalg.norm(out, axis=1), np.linalg.norm(rows[3:], axis=1)
    assert (norms <= 0.7).all()
    assert (out[:3] == 0.0).all()
    kept = before <= 0.69
    assert kept.any()
    assert np.array_equal(out[3:][kept], rows[3:][kept])
    assert np.allclose(norms[3:][~kept & (before > 0.7)], 0.7, rtol=1e-12)
    loose = mutant(sums, "SHORT * most / norm", "1.001 * most / norm")
    assert (np.linalg.norm(loose.clipped_rows(rows, 0.7), axis=1) > 0.7).any()


PRIVATE = merged(CASES["fedbuff-private"], {"engine": "cohort"})  # compiled for nothing
RELATIONS = ("replace-one", "add-or-remove-one", "agent")


def epsilons(run, module=pricing):
    """mu^2 of an agent's releases under each relation."""
    rows = np.full(6, 8)
    mine = run.releases[run.releases.agent == 0]
    return [module.prices(columns(mine), rows, one).mu2.sum() for one in RELATIONS]


def columns(frame):
    from desim.privacy.accounting.accountants import columns_of

    return columns_of(frame)


def test_a_clipped_change_costs_the_same_for_one_record_and_for_all():
    run = desim.run(PRIVATE)
    rows, C, sigma = run.releases, 0.3, 0.1
    assert set(rows.mechanism) == {"clipped-gaussian"}
    assert np.array_equal(rows.sensitivity, np.full(len(rows), 2.0 * C))
    assert np.array_equal(rows.scale, np.full(len(rows), sigma))
    mine = (rows.agent == 0).sum()
    wanted = mine * (2.0 * C / sigma) ** 2
    assert epsilons(run) == pytest.approx([wanted] * 3, rel=1e-12)
    other = mutant(pricing, "CLIPPED_GAUSSIAN, 1.0, group)", "GAUSSIAN, 1.0, group)")
    assert epsilons(run, other)[1:] != pytest.approx([wanted] * 2, rel=1e-3)
    told = run.epsilon(delta=1e-5, view="coordinator", relation="agent")
    last = told[told.agent == 0].epsilon.iloc[-1]
    arrived = ((rows.agent == 0) & (rows.delivered > 0)).sum()
    assert last == pytest.approx(epsilon_of(np.sqrt(arrived) * 2.0 * C / sigma, 1e-5), rel=1e-9)


def test_a_target_calibrates_the_noise_of_whole_agents():
    sure = {"privacy": {"target": {"epsilon": 4.0, "delta": 1e-5}, "relation": "agent"}}
    scenario = merged(PRIVATE, {**sure, "participation": "all", "policy": "all"})
    scenario["privacy"].pop("noise")
    run = desim.run(scenario)
    spent = run.epsilon(delta=1e-5, view="coordinator", relation="agent").epsilon.max()
    assert spent == pytest.approx(4.0, rel=1e-6)


def test_a_budget_of_whole_agents_counts_as_the_account_does():
    run = desim.run(CASES["fedbuff-budget"])
    spent = run.epsilon(delta=1e-5, view="eavesdropper", relation="agent").epsilon
    assert 15.0 < spent.max() <= 30.0
    assert (run.events.kind == "retire").any()


# Words -------------------------------------------------------------------------------------------

LATE = {"policy": {"quorum": 3, "late": "carry", **POLY}}


@pytest.mark.parametrize(
    ("algorithm", "changes", "text"),
    [
        (FEDAVG, {"policy": {"quorum": 3, **POLY}}, "policy: found staleness where late replies"),
        (FEDAVG, {"policy": {"deadline": "1 s", **POLY}}, "allowed: with buffer, or with late: ca"),
        (FEDAVG, {"policy": {"buffer": 3, "staleness": "constnat"}}, "did you mean 'constant'?"),
        (FEDAVG, {"policy": {"buffer": 3, "staleness": {"hinge": {"c": 1}}}}, "staleness.hinge.c"),
        (FEDAVG, {"policy": {"buffer": 3, "staleness": {"polynomial": -1}}}, "a number >= 0"),
        ({"name": "fed-plt", "rho": 0.5}, LATE, "with fed-plt, but every agent's latest z_i"),
        (SCAFFOLD, LATE, "policy.staleness: found polynomial with scaffold, but c is the mean"),
        (FEDDYN, LATE, "with feddyn, but h is the mean of all g_k only"),
        ({"name": "5gcs", "tau": 0.2}, LATE, "with 5gcs, but v is the sum of all u_i"),
        (FEDBUFF, {}, "policy.buffer: found 10 replies from 6 invited agents"),
        ({**FEDAVG, "global_step": 0.5, "server": {"adam": ADAM}}, {}, "global_step: found 0.5 w"),
        ({**FEDAVG, "server": {"adam": {}}}, {}, "algorithm.server.adam.rate: missing"),
        ({**FEDAVG, "server": {"adam": {"rate": 1, "beta2": 1}}}, {}, "a number >= 0 and below 1"),
        ({**FEDAVG, "server": "adm"}, {}, "did you mean 'adam'?"),
        ({**SCAFFOLD, "global_step": 2.0, "server": {"yogi": ADAM}}, {}, "whose rate is the step"),
        ({**FEDBUFF, "local": NOISY}, {"policy": "all"}, "noisy, but fedbuff adds noise to what"),
        (FEDBUFF, {"policy": "all", "privacy": {"noise": {"sigma": 1.0}}}, "set algorithm.clip"),
        ({**FEDPROX, "mu": 0}, {}, "algorithm.mu: found 0"),
        ({**FEDASYNC, "server": {"momentum": 0.9}}, {}, "algorithm.server: unknown key"),
    ],
)
def test_what_makes_no_sense_is_an_error(algorithm, changes, text):
    with pytest.raises(InputError) as error:
        check(desim.load(star(algorithm=algorithm, **changes)))
    assert text in str(error.value)


def test_what_has_no_guarantee_is_a_warning():
    def warned(algorithm, **changes):
        return " ".join(check(desim.load(star(algorithm=algorithm, **changes))).method.warnings)

    assert "may diverge" in warned({**FEDASYNC, "alpha": 1.0})
    assert "fedprox is not proved with replies to older models" in warned(FEDPROX, policy="each")
    assert warned(FEDBUFF, policy="each") == ""
    assert warned(FEDASYNC) == ""
    assert "proved for uniform cohorts" in warned(FEDDYN, policy="each")
    assert build(desim.load(star(algorithm=FEDPROX))).method.warnings == []
    assert federated.ServerSteps(federated.Server.of("none"), 3).memory() == {}


# The reproduction --------------------------------------------------------------------------------


def far_from_verdicts(module):
    """How many words on made-up factors are wrong."""
    told = [module.beyond(over, 0.1, 10) for over in (0.2, 0.3, -0.3)]
    wanted = ["not told apart", "differs: smaller here (3.0", "differs: larger here (3.0"]
    wrong = sum(not one.startswith(two) for one, two in zip(told, wanted, strict=True))
    return wrong + (module.interval(np.log(2.0), 0.1, 10) != "2.00 (1.60 to 2.51)")


def test_a_factor_is_told_from_the_printed_one_beyond_its_error():
    assert far_from_verdicts(fedbuff_seconds) == 0
    for right, wrong in (("over > 0.0 else", "over < 0.0 else"), ("gap - reach", "gap - error")):
        assert far_from_verdicts(mutant(fedbuff_seconds, right, wrong)) > 0
