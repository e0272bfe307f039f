"""Attackers and robust rules: their equations, their bits on all engines, and what is refused."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from cases import star
from naive import robust as naive

import desim
from desim.errors import InputError
from desim.methods.shared import attacks, robust_rules
from desim.methods.shared.robust_sums import Rule
from desim.scenario.build import build, check
from desim.scenario.catalogue import SECTIONS
from desim.scenario.harm import in_words

GOLDEN = json.loads((Path(__file__).parent / "golden" / "byzfl.json").read_text())
ROWS, TWO, HONEST = (np.array(GOLDEN[name]) for name in ("rows", "two", "honest"))
NEAR = {"rtol": 0.0, "atol": 1e-10}
ZEROS = np.zeros(ROWS.shape[1])
LOTS = np.random.default_rng(5).permutation(len(ROWS))
RULES = {  # by name: desim's on rows, the naive one on lists, and wrong twins of that
    "median": (
        robust_rules.coordinate_median,
        naive.coordinate_median,
        lambda rows: [sorted(c)[len(rows) // 2 - 1] for c in zip(*rows, strict=True)],
    ),
    "trimmed-mean": (
        lambda rows: robust_rules.trimmed_mean(rows, 3),
        lambda rows: naive.trimmed_mean(rows, 3),
        lambda rows: naive.trimmed_mean(rows, 2),
    ),
    "krum": (
        lambda rows: robust_rules.multi_krum(rows, 2, 1),
        lambda rows: naive.multi_krum(rows, 2, 1),
        lambda rows: max(rows, key=naive.norm),
    ),
    "multi-krum": (
        lambda rows: robust_rules.multi_krum(rows, 2, 5),
        lambda rows: naive.multi_krum(rows, 2, 5),
        lambda rows: naive.multi_krum(rows, 2, 6),
    ),
    "geometric-median": (
        lambda rows: robust_rules.geometric_median(rows, 1e-6, 8),
        lambda rows: naive.geometric_median(rows, 1e-6, 8),
        lambda rows: naive.geometric_median(rows, 1e-6, 7),
    ),
    "centred-clipping": (
        lambda rows: robust_rules.centred_clipping(rows, ZEROS, 2.5, 3),
        lambda rows: naive.centred_clipping(rows, ZEROS.tolist(), 2.5, 3),
        lambda rows: naive.centred_clipping(rows, ZEROS.tolist(), 2.5, 2),
    ),
    "nnm": (
        lambda rows: robust_rules.coordinate_median(robust_rules.mixed_with_nearest(rows, 3)),
        lambda rows: naive.coordinate_median(naive.mixed_with_nearest(rows, 3)),
        lambda rows: naive.coordinate_median(naive.mixed_with_nearest(rows, 4)),
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_its_definition(name):
    rule, oracle, wrong = RULES[name]
    for rows in (ROWS, TWO, HONEST, np.random.default_rng(2).normal(size=(8, 3))):
        if name == "centred-clipping" and rows.shape[1] != len(ZEROS):
            continue
        np.testing.assert_allclose(rule(rows), oracle(rows.tolist()), **NEAR)
    even = ROWS[:10]
    assert np.abs(rule(even) - np.array(wrong(even.tolist()))).max() > 1e-6


@pytest.mark.parametrize("name", RULES)
def test_the_order_of_agents_changes_no_bit(name):
    rule, random = RULES[name][0], np.random.default_rng(3)
    twice = np.concatenate([ROWS[:8], ROWS[2:4]])  # two of them say the same
    for rows in (ROWS, twice):
        for _ in range(5):
            assert np.array_equal(rule(rows), rule(rows[random.permutation(len(rows))]))
    orders = [random.permutation(len(ROWS)) for _ in range(20)]  # a sum as they come rounds so
    assert len({robust_rules.mean_of(ROWS[order]).tobytes() for order in orders}) > 1


def test_buckets_are_those_of_lots_whatever_the_order():
    found = robust_rules.bucket_means(ROWS, LOTS, 3)
    np.testing.assert_allclose(found, naive.bucket_means(ROWS.tolist(), LOTS.tolist(), 3), **NEAR)
    assert len(found) == 4
    order = np.random.default_rng(1).permutation(len(ROWS))
    assert np.array_equal(robust_rules.bucket_means(ROWS[order], LOTS[order], 3), found)
    assert not np.allclose(robust_rules.bucket_means(ROWS[order], LOTS, 3), found)  # by places


def test_rules_are_those_of_byzfl():
    known = GOLDEN["rules"]
    found = {
        "median": robust_rules.coordinate_median(ROWS),
        "trimmed-mean 3": robust_rules.trimmed_mean(ROWS, 3),
        "krum 2": robust_rules.multi_krum(ROWS, 2, 1),
        "multi-krum 2 8": robust_rules.multi_krum(ROWS, 2, 8),
        "geometric-median 0.1 3 from 0": robust_rules.geometric_median(ROWS, 0.1, 3, ZEROS),
        "geometric-median 1e-6 200 from 0": robust_rules.geometric_median(ROWS, 1e-6, 200, ZEROS),
        "nnm 3 then median": robust_rules.coordinate_median(
            robust_rules.mixed_with_nearest(ROWS, 3)
        ),
    }
    for name, value in found.items():
        np.testing.assert_allclose(value, known[name], **NEAR, err_msg=name)
    first = robust_rules.centred_clipping(ROWS, ZEROS, 2.5, 3)
    again = robust_rules.centred_clipping(TWO, first, 2.5, 3)
    np.testing.assert_allclose(
        [first, again], known["centred-clipping 2.5 3, rows then two"], **NEAR
    )
    mixed = robust_rules.ordered(robust_rules.mixed_with_nearest(ROWS, 3))
    np.testing.assert_allclose(mixed, robust_rules.ordered(np.array(known["nnm 3"])), **NEAR)
    wrong = robust_rules.multi_krum(ROWS, 2, 7)
    assert np.abs(wrong - known["multi-krum 2 8"]).max() > 1e-6


def test_a_geometric_median_has_the_least_sum_of_distances():
    found = robust_rules.geometric_median(ROWS, 1e-9, 500)
    least, random = naive.distance_sum(ROWS.tolist(), found), np.random.default_rng(4)
    for size in (1e-3, 1e-1, 1.0):
        other = found + size * random.normal(size=len(found))
        assert naive.distance_sum(ROWS.tolist(), other) > least


def test_attacks_are_their_definitions_and_byzfls():
    known, honest = GOLDEN["attacks"], HONEST.tolist()
    shift = attacks.small_shift(HONEST, 1.5)
    np.testing.assert_allclose(shift, naive.small_shift(honest, 1.5), **NEAR)
    np.testing.assert_allclose(shift, known["a-little-is-enough -1.5"], **NEAR)
    negated = attacks.negated_mean(HONEST, 2.0)
    np.testing.assert_allclose(negated, naive.negated_mean(honest, 2.0), **NEAR)
    np.testing.assert_allclose(negated, known["inner-product 2"], **NEAR)
    assert np.abs(attacks.small_shift(HONEST, 1.4) - shift).max() > 1e-3
    for n, m in ((50, 12), (20, 4), (11, 3)):
        enough = attacks.least_that_is_enough(n, m)
        assert enough == pytest.approx(naive.least_that_is_enough(n, m), abs=1e-12)
        assert enough != pytest.approx(naive.least_that_is_enough(n, m - 1), abs=1e-6)


# On engines.

ROUNDS = 4


def scenario(engine="auto", aggregate=None, attack=None, name="fedavg", **changes):
    """Nine agents on links that differ, of whom two attack."""
    made = star(problem={"agents": 9}, observe={"metrics": ["loss"]}, stop={"rounds": ROUNDS})
    made["algorithm"] = {"name": name, "local": {"epochs": 2}}
    if aggregate is not None:
        made["algorithm"]["aggregate"] = aggregate
    if attack is not None:
        made["attackers"] = {"agents": [2, 5], "attack": attack}
    return {**made, "engine": engine, **changes}


class Rows(list):
    def append(self, name, columns):
        if name != "metrics":
            super().append((name, {key: [*columns[key]] for key in columns}))


def outcome(*place, **changes):
    return build(desim.load(scenario(*place, **changes))).play(Rows())


LIES = ("sign-flip", {"gaussian": 3}, "a-little-is-enough", {"inner-product": 2}, "mimic")
TIMED = ("label-flip", {"delay": "1 s"})


WAITS = [{"deadline": "300 ms"}, {"buffer": 5}]


@cache
def honest(policy):
    """The same without attackers."""
    return outcome("cohort", "median", None, policy=json.loads(policy))


@pytest.mark.parametrize("place", range(7), ids=lambda place: str([*LIES, *TIMED][place]))
def test_engines_agree_on_attacks(place):
    attack, policy = [*LIES, *TIMED][place], WAITS[place % 2]
    found = [outcome(e, "median", attack, policy=policy) for e in ("cohort", "agents")]
    assert np.array_equal(found[0].model, found[1].model)
    assert found[0].time == found[1].time
    assert found[0].notes == found[1].notes
    said = found[0].notes["listeners"]["attackers"]
    assert said["agents"] == [2, 5]
    assert ("messages" in said) == (attack in LIES)
    other = honest(json.dumps(policy))
    assert not np.array_equal(other.model, found[0].model) or other.time != found[0].time


AGGREGATES = {
    "trimmed": {"trimmed-mean": "25 %"},
    "multi": {"multi-krum": {"f": 2, "m": 4}},
    "geometric": "geometric-median",
    "centred": {"centred-clipping": {"tau": 0.1}},
    "buckets": {"median": True, "bucketing": 2},
    "nearest": {"mean": True, "nnm": 2},
}


@pytest.mark.parametrize("rule", AGGREGATES)
def test_engines_agree_on_rules(rule):
    name = ("fedavg", "scaffold", "feddyn", "fedbuff")[[*AGGREGATES].index(rule) % 4]
    changes = {"policy": {"buffer": 8}} if name == "fedbuff" else {}
    rule = AGGREGATES[rule]
    found = [outcome(e, rule, "sign-flip", name, **changes) for e in ("cohort", "agents")]
    assert found[0].status == "done"
    assert np.array_equal(found[0].model, found[1].model)
    plain = outcome("cohort", None, "sign-flip", name, **changes)
    assert not np.array_equal(found[0].model, plain.model)


def test_the_mean_stays_as_it_was():
    """Compiled rounds play it, and a feature that takes it by another way comes near."""
    plain, said = outcome(), outcome("auto", "mean")
    assert np.array_equal(plain.model, said.model)
    assert (plain.engine, said.engine, outcome("auto", "median").engine) == (
        "compiled", "compiled", "cohort",
    )  # fmt: skip
    near = outcome("auto", {"trimmed-mean": "5 %"})  # of nine nothing
    np.testing.assert_allclose(near.model, plain.model, rtol=0, atol=1e-12)


def test_lies_and_rules_are_what_a_twin_by_hand_makes_of_them():
    """One round of one full step from zeros: the rule of what attackers make of the gradients."""
    alone = {"algorithm": {"name": "fedavg", "local": {"epochs": 1, "step": 0.5}}}
    made = {**scenario(), **alone, "stop": {"rounds": 1}}
    made["attackers"] = {"agents": [2, 5], "attack": "a-little-is-enough"}
    made["algorithm"]["aggregate"] = {"centred-clipping": {"tau": 0.3, "iterations": 2}}
    simulation = build(desim.load(made))
    problem, replies = simulation.problem, []
    for i in range(9):
        rows = slice(*problem.start[i : i + 2])
        pull = -(problem.A[rows] * problem.b[rows, None]).mean(axis=0) / 2
        replies.append((-0.5 * pull).tolist())
    z = naive.least_that_is_enough(9, 2)
    lie = naive.small_shift([r for i, r in enumerate(replies) if i not in (2, 5)], z)
    sent = [lie if i in (2, 5) else r for i, r in enumerate(replies)]
    due = naive.centred_clipping(sent, [0.0] * problem.dim, 0.3, 2)
    model = simulation.play(Rows()).model[-1]
    np.testing.assert_allclose(model, due, **NEAR)
    wrong = naive.centred_clipping(replies, [0.0] * problem.dim, 0.3, 2)
    assert np.abs(model - wrong).max() > 1e-6


def test_delay_takes_so_much_longer_and_changes_nothing_else():
    still, late = outcome("cohort"), outcome("cohort", None, {"delay": "5 s"})
    assert np.array_equal(still.model, late.model)
    assert late.time == pytest.approx(still.time + ROUNDS * 5.0, abs=1.0)
    compiled = outcome("auto", None, {"delay": "5 s"})
    assert (compiled.engine, compiled.time) == ("compiled", late.time)


def test_late_and_silent_ones_are_not_heard_by_a_deadline():
    policy = {"deadline": "1 s"}
    late = outcome("cohort", None, {"delay": "deadline"}, policy=policy, network={})
    silent = outcome("cohort", None, "silence", policy=policy, network={})
    agents = outcome("agents", None, "silence", policy=policy, network={})
    assert late.time == silent.time == agents.time == pytest.approx(ROUNDS * 1.0)
    assert np.array_equal(late.model, silent.model)
    assert np.array_equal(silent.model, agents.model)
    assert outcome("cohort", policy=policy, network={}).time < 2.0


def test_flipped_labels_are_those_of_attackers_alone():
    flipped, plain = (
        build(desim.load(scenario(attack=attack))).problem for attack in ("label-flip", None)
    )
    turned = np.flatnonzero(flipped.b != plain.b)
    mine = [*range(*plain.start[2:4]), *range(*plain.start[5:7])]
    assert turned.tolist() == mine
    assert np.array_equal(flipped.b[mine], -plain.b[mine])


def test_attackers_are_drawn_by_the_seed():
    who = [attacks.drawn_attackers(seed, 20, 4).tolist() for seed in (1, 1, 2)]
    assert who[0] == who[1] != who[2]
    assert len({*who[0]}) == 4


def test_a_rule_with_too_few_replies_leaves_the_model_and_says_so():
    policy = {"deadline": "150 ms"}
    played = outcome("cohort", {"krum": 3}, None, policy=policy)
    assert any("needs 9" in text and "stays" in text for text in played.warnings)
    heard = outcome("cohort", {"krum": 1}, None, policy=policy)
    assert np.array_equal(played.model, np.zeros_like(played.model))
    assert not np.array_equal(heard.model, played.model)


def test_what_is_not_finite_is_left_out():
    class Hub:
        round = 1

    class Replies:
        weighed = payload = np.array([[1.0], [2.0], [np.inf], [np.nan], [9.0], [1e160]])
        who = np.arange(6)

    rule = Rule("median").feature(None)
    total, number = rule.total(Hub(), Replies())
    assert (total / number).tolist() == [2.0]


@pytest.mark.parametrize("rule", ["geometric-median", {"mean": True, "nnm": 2}], ids=str)
def test_a_reply_whose_square_is_not_finite_spoils_no_rule(rule):
    """Its distance overflows: weights of 0 / 0 made a model of nan, where the honest ones agree."""
    played = outcome("cohort", rule, {"gaussian": 1e200})
    assert played.status == "done"
    assert 0.0 < np.abs(played.model).max() < 2.0


def test_clipped_gossip_counts_what_is_not_finite_as_its_own_model():
    x, heard = np.array([[1.0, 2.0]]), np.array([[np.inf, 0.0], [np.nan, 1.0], [1e200, 2.0]])
    found = robust_rules.clipped_differences(x, heard, np.zeros(3, int), 0.5)
    assert np.array_equal(found, np.repeat(x, 3, axis=0))
    near = robust_rules.clipped_differences(x, np.array([[9.0, 2.0]]), np.zeros(1, int), 0.5)
    np.testing.assert_allclose(near, [[1.5, 2.0]], **NEAR)


class World:
    """What a rule asks of its world."""

    def __init__(self):
        self.cautions = []

    def caution(self, text):
        self.cautions.append(text)


def test_too_few_replies_are_warned_of_after_a_round_without_any():
    """The first round has none, the second one two that cannot be used, the third one one."""

    class Hub:
        round = 0

    class Replies:
        pass

    world, rows = World(), ([], [[np.nan], [np.inf]], [[1.0]])
    robust, hub = Rule("krum", f=1).feature(world), Hub()
    for some in rows:
        hub.round += 1
        replies = Replies()
        replies.weighed, replies.who = np.array(some).reshape(-1, 1), np.arange(len(some))
        total, number = robust.total(hub, replies)
        assert (total.tolist(), number) == ([0.0], 0)
    assert len(world.cautions) == 1
    assert "round 2 has 0 replies of 2 with numbers that can be used" in world.cautions[0]


def test_a_mean_of_more_than_honest_ones_bears_fewer():
    for n, f, m in ((9, 2, 7), (9, 2, 8), (9, 2, 9), (9, 3, 1)):
        bears = Rule("multi-krum", f=f, m=m).borne(n)
        rows = np.arange(1.0, n + 1)[:, None] / 100.0

        def pulled(liars, m=m, f=f, rows=rows):
            there = np.concatenate([rows[liars:], np.full((liars, 1), 1e6)])
            return robust_rules.multi_krum(there, f, m)[0] > 1.0

        assert not pulled(bears)
        assert bears == f or pulled(bears + 1)


def test_classes_turn_round_by_how_many_a_loss_has():
    made = scenario(attack="label-flip")
    made["problem"] |= {"loss": {"softmax": {"classes": 5}}}
    turned = build(desim.load(made)).problem
    made.pop("attackers")
    plain = build(desim.load(made)).problem
    mine = [*range(*plain.start[2:4]), *range(*plain.start[5:7])]
    assert {*plain.b.tolist()} == {0.0, 1.0}  # of the five
    assert np.array_equal(turned.b[mine], 4.0 - plain.b[mine])


def test_attackers_that_do_not_exist_are_refused_once_a_file_tells_how_many_do(tmp_path):
    A = np.random.default_rng(0).normal(size=(4, 5, 3))
    np.savez(tmp_path / "a.npz", A=A, b=np.sign(A[..., 0]))
    made = scenario(attackers={"agents": [30], "attack": "label-flip"})
    data = {"source": "npz", "file": str(tmp_path / "a.npz")}
    made["problem"] = {"data": data, "loss": "logistic", "regularizer": {"l2": 0.1}}
    with pytest.raises(InputError, match="found 30; allowed: 0 to 3"):
        build(desim.load(made))


INVITED = {"participation": {"uniform": 5}}  # of nine, two of whom are silent
PLT = {"name": "fed-plt", "rho": 1.0, "aggregate": "median"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"aggregate": {"krum": 4}}, "needs 11 replies, where a round has 9 agents"),
        ({"aggregate": {"krum": 2}, "policy": {"quorum": 5}}, "has 5 by policy quorum"),
        ({"aggregate": {"krum": 2}, "participation": {"uniform": 6}}, "has 6 invited agents"),
        ({"aggregate": {"clipped-gossip": 1.0}}, "found clipped-gossip on a star"),
        ({"aggregate": {"trimmed-mean": 0.5}}, "which leaves nothing"),
        ({"aggregate": "medain"}, "did you mean 'median'?"),
        ({"aggregate": {"geometric-median": {"nu": 1e-300}}}, "allowed: a number from 1e-150 to"),
        ({"algorithm": PLT}, "algorithm.send: found z"),
        ({"aggregate": "median", "name": "fedasync"}, "does not add replies up"),
        ({"attack": {"delay": "deadline"}}, "found deadline with policy all"),
        (
            {"attack": {"delay": "-1 s"}},
            "attack.delay: found '-1 s'; allowed: a duration",
        ),
        ({"attack": "silence"}, "waits for an agent that is silent for ever"),
        ({"attack": "silence", **INVITED, "policy": {"quorum": 4}}, "or {quorum: 3} or fewer"),
        ({"attack": "silence", **INVITED, "policy": {"buffer": 5}}, "or {quorum: 3} or fewer"),
        ({"attack": "silence", **INVITED, "policy": {"deadline": 1, "at_least": 4}}, "quorum: 3}"),
        (
            {"attack": "silence", "participation": {"bernoulli": 0.1}, "policy": {"quorum": 3}},
            "for ever; allowed with it: policy: {deadline: ...}",
        ),
        ({"attackers": {"agents": [9], "attack": "mimic"}}, "found 9; allowed: 0 to 8"),
        ({"attackers": {"share": "3 %", "attack": "mimic"}}, "found 0 of 9 agents"),
        ({"attackers": {"attack": "mimic"}}, "found neither share nor agents"),
        ({"attackers": {"agents": [1, 1], "attack": "mimic"}}, "found an agent twice"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(changes, words):
    with pytest.raises(InputError) as error:
        check(desim.load(scenario(**changes)))
    assert words in str(error.value)


@pytest.mark.parametrize("quorum", [2, 3])
def test_a_silent_pair_below_one_edge_is_refused_where_the_edge_waits_for_it(quorum):
    made = scenario(attackers={"agents": [0, 1], "attack": "silence"}, policy={"quorum": quorum})
    made["problem"] |= {"agents": 8}
    made["network"] = {"topology": {"tree": [2, 4]}, **made["network"]}
    if quorum == 3:  # of four, of whom two are silent
        with pytest.raises(InputError, match="1 of 2 edges below the cloud wait for ever"):
            build(desim.load(made))
    else:
        assert build(desim.load(made)).play(Rows()).status == "done"


@pytest.mark.parametrize("liars", [[0, 4], [0, 1]], ids=str)
def test_edges_that_invite_some_may_have_one_silent_client_each(liars):
    """Two of three that each edge invites are awaited: one may be silent."""
    made = scenario(attackers={"agents": liars, "attack": "silence"}, policy={"quorum": 2})
    made["problem"] |= {"agents": 8}
    made["network"] = {"topology": {"tree": [2, 4]}, **made["network"]}
    made["participation"] = {"uniform": 3}
    if liars == [0, 1]:
        with pytest.raises(InputError, match="1 of 2 edges below the cloud wait for ever"):
            build(desim.load(made))
    else:
        assert build(desim.load(made)).play(Rows()).status == "done"


@pytest.mark.parametrize("trust", ["coordinator", "secure-sum"])
def test_sums_that_somebody_else_adds_up_have_no_rule(trust):
    private = {"trust": trust, "clip": 1.0, "noise": {"multiplier": 1.0}, "delta": 1e-5}
    with pytest.raises(InputError) as error:
        check(desim.load(scenario(aggregate="median", privacy=private)))
    reason = {"coordinator": "a reply moves a sum by 2 clip", "secure-sum": "nobody sees single"}
    assert reason[trust] in str(error.value)
    if trust == "secure-sum":
        with pytest.raises(InputError, match="lies before the mask"):
            check(desim.load(scenario(attack="mimic", privacy=private)))


def test_more_attackers_than_a_rule_bears_are_warned_of():
    def warned(aggregate):
        method = build(desim.load(scenario(aggregate=aggregate, attack="sign-flip"))).method
        return [text for text in method.warnings if text.startswith("attackers")]

    assert warned("median") == warned({"krum": 2}) == []
    assert "mean of 9 replies bears none" in warned(None)[0]
    assert "trimmed-mean of 9 replies bears 1" in warned({"trimmed-mean": "20 %"})[0]


# On graphs.


ALONE = {"policy": {"deadline": "30 ms"}}
TIMED_QUORUM = {"policy": {"quorum": 2}, "stop": {"time": "300 ms"}}


def gossip(engine, aggregate=None, attack=None, **changes):
    """Six agents on a ring, of whom one attacks."""
    made = {
        "seed": 3,
        "problem": {
            "agents": 6,
            "data": {"source": "synthetic", "kind": "regression", "rows": 5, "dim": 3},
            "loss": "squared",
        },
        "algorithm": {"name": "dsgd", "alpha": 0.1, "init": {"normal": 1.0}},
        "network": {"topology": "ring", "link": {"latency": {"uniform": ["5 ms", "40 ms"]}}},
        "observe": {"metrics": ["consensus"], "iterates": True},
        "stop": {"rounds": 4},
    }
    if aggregate is not None:
        made["algorithm"]["aggregate"] = aggregate
    if attack is not None:
        made["attackers"] = {"agents": [2], "attack": attack}
    return build(desim.load({**made, "engine": engine, **changes}))


def check_clipped(tau):
    """Rounds of clipped gossip by hand beside those of tau, with an agent that turns signs."""
    simulation = gossip("cohort", {"clipped-gossip": tau}, "sign-flip")
    problem, W = simulation.problem, simulation.method.averages.W
    x = simulation.settings.initial("x0").tolist()
    found, sent = simulation.play(Rows()).iterates, x
    for k in range(1, 5):
        mixed, others = [], [[j for j in range(6) if W[i, j] and j != i] for i in range(6)]
        for i in range(6):
            near = [sent[j] for j in others[i]]
            mixed.append(naive.clipped_gossip(x[i], near, W[i, others[i]].tolist(), 0.3))
        new = []
        for i in range(6):
            A, b = (part[slice(*problem.start[i : i + 2])] for part in (problem.A, problem.b))
            pull = 0.1 * 2.0 / len(b) * A.T @ (A @ np.array(x[i]) - b)
            new.append((np.array(mixed[i]) - pull).tolist())
        x = new
        sent = [[-a for a in row] if i == 2 else row for i, row in enumerate(x)]
        np.testing.assert_allclose(found[k], x, **NEAR)


def test_clipped_gossip_is_its_definition():
    check_clipped(0.3)
    with pytest.raises(AssertionError):
        check_clipped(0.31)


@pytest.mark.parametrize("attack", ["sign-flip", {"gaussian": 3}, {"delay": "1 s"}, None], ids=str)
def test_engines_agree_on_clipped_gossip(attack):
    policy = {"deadline": "30 ms"}
    cohort, agents = (
        gossip(one, {"clipped-gossip": 0.3}, attack, policy=policy).play(Rows())
        for one in ("cohort", "agents")
    )
    assert np.array_equal(cohort.iterates, agents.iterates)
    assert cohort.time == agents.time
    plain = gossip("cohort", None, attack, policy=policy).play(Rows())
    assert not np.array_equal(plain.iterates, cohort.iterates)


@pytest.mark.parametrize("policy", [{"deadline": "30 ms"}, {"quorum": 1}], ids=str)
def test_silence_on_a_graph_ends_at_a_time(policy):
    found = [
        gossip(one, None, "silence", policy=policy, stop={"time": "300 ms"}).play(Rows())
        for one in ("cohort", "agents")
    ]
    assert [(one.status, one.time) for one in found] == [("done", 0.3)] * 2
    assert np.array_equal(found[0].model, found[1].model)


def test_a_clip_that_nothing_reaches_is_plain_gossip():
    far, plain = (gossip("auto", rule).play(Rows()) for rule in ({"clipped-gossip": 1e9}, None))
    np.testing.assert_allclose(far.iterates, plain.iterates, rtol=0, atol=1e-12)
    assert (far.engine, plain.engine) == ("cohort", "compiled")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"aggregate": "median"}, "found median with dsgd, which has no coordinator here"),
        ({"attack": "mimic"}, "found mimic on a graph, where no attacker sees"),
        ({"attack": "silence", **ALONE}, "stop: 4 rounds, where every agent counts"),
        ({"attack": "silence", **ALONE, "stop": {"rounds": 4, "time": "1 s"}}, "4 rounds or 1 s"),
        ({"attack": "silence", **TIMED_QUORUM}, "agent 1 waits for 2 of its 2 neighbours"),
    ],
    ids=str,
)
def test_what_makes_no_sense_on_a_graph_is_refused(changes, words):
    with pytest.raises(InputError) as error:
        gossip("auto", **changes)
    assert words in str(error.value)


def test_who_attacks_is_said_before_the_run_and_beside_an_epsilon():
    made = scenario(aggregate={"krum": 1, "bucketing": 2, "nnm": 1}, attack="sign-flip")
    made["problem"] = {**made["problem"], "clip": 1.0}
    made["algorithm"]["local"] = {"epochs": 2, "solver": "noisy", "tau": 0.1}
    made["privacy"] = {"delta": 1e-5}
    simulation = build(desim.load(made))
    lines = in_words(simulation.origin.scenario, 9)
    assert lines[0].startswith("aggregate: krum, of means of 2 replies, of replies mixed")
    assert lines[1] == "attackers: 2 and 5 of 9 agents: sign-flip"
    assert any("it holds for the others" in text for text in simulation.method.warnings)
    honest = build(desim.load({**made, "attackers": {"agents": [1], "attack": "label-flip"}}))
    assert not any("it holds for" in text for text in honest.method.warnings)


def test_rules_and_attacks_are_listed():
    rules, attacking = ({name.strip("{").partition(":")[0] for name, _ in SECTIONS[kind]()}
                        for kind in ("rules", "attacks"))  # fmt: skip
    assert {"median", "krum", "nnm", "bucketing", "clipped-gossip"} <= rules
    assert {"mimic", "silence", "delay", "label-flip", "inner-product"} <= attacking


@pytest.mark.parametrize("n", [5, 9, 10, 25])
def test_a_geometric_median_bears_fewer_than_half_however_far_they_are(n):
    """Eight steps end as near to honest replies as the least sum of distances, or nearly."""
    f, random = Rule("geometric-median").borne(n), np.random.default_rng(n)
    assert f == (n - 1) // 2
    honest = 5.0 + random.normal(size=(n - f, 20))
    way, centre = random.normal(size=20) / 20**0.5, honest.mean(axis=0)
    spread = np.linalg.norm(honest - centre, axis=1).max()
    for far in (1e3, 1e6, 1e12):
        rows = np.concatenate([honest, np.tile(centre + far * way, (f, 1))])
        found = robust_rules.geometric_median(rows, 1e-6, 8)
        assert np.linalg.norm(found - centre) < 2.5 * spread
        from_mean = robust_rules.geometric_median(rows, 1e-6, 8, rows.mean(axis=0))
        assert np.linalg.norm(from_mean - centre) > 1e-3 * far
