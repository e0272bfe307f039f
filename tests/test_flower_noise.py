"""Noise that Flower's strategies add at the server: its rows in the ledger, or why none."""

from functools import wraps

import dp_accounting
import numpy as np
import pytest
from mutant import mutant

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'desim[flower]'")

from test_flower import NODES, scenario

import desim
from desim.flower import central
from desim.flower.noise import chains

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
CLIP, MULTIPLIER, DELTA = 0.5, 2.0, 1e-5  # of lines_noise
WEIGHTS = np.array([4, 5, 6, 7])  # rows of the nodes
SIDES = {
    "server": ("app", "lines_client:app"),
    "client": ("app", "lines_noise:clipped"),
    "classic server": ("classic", "lines_client:classic"),
    "classic client": ("classic", "lines_noise:clipped_classic"),
}


def played(side, client="", *, config=(), **sections):
    server, own = SIDES.get(side, (side, client))
    own = client or own
    words = [f"noise={side.split()[-1] if side in SIDES else 'server'}", "rounds=2", *config]
    tree = scenario(config=words, **{"rounds": 2, **sections})
    for where in (tree["problem"]["model"], tree["problem"]["data"]["arguments"]):
        where |= {"server": f"lines_noise:{server}", "client": own}
    tree["observe"] = {"metrics": []}
    return desim.run(tree)


def averages(run):
    return run.releases[run.releases["mechanism"] == "sum"]


def by_hand(ratios):
    """Epsilon of Gaussian releases, one after the other, of deviation over sensitivity each."""
    return dp_accounting.get_epsilon_gaussian(sum(one**-2 for one in ratios) ** -0.5, DELTA)


def epsilons(run, relation="agent"):
    return run.account(delta=DELTA, view="participants", relation=relation).final


def ratios(weights=WEIGHTS):
    """Deviation over sensitivity, of each node, as the papers have them."""
    return (MULTIPLIER * CLIP / NODES) / (2 * CLIP * weights / weights.sum())


@pytest.mark.parametrize("side", SIDES)
def test_an_average_costs_what_each_node_can_move_it_by(side):
    run = played(side)
    own = epsilons(run)
    for i in (0, 3):
        assert own[i] == pytest.approx(by_hand([ratios()[i]] * 2), rel=1e-3)
    assert own[3] > 1.2 * by_hand([MULTIPLIER / 2] * 2)  # of equal weights, which these are not
    assert np.isinf(run.account(view="coordinator", delta=DELTA).final).all()
    assert "trust" in run.manifest["privacy"]
    assert "nobody knows or sets the seeds of noise" in " ".join(run.manifest["warnings"])
    assert "views participants and final-model" in " ".join(run.manifest["warnings"])


def test_who_is_left_out_takes_its_weight_along():
    change = CLIP * np.array([1, 1, 1, -1])  # of nodes, along a line
    share = WEIGHTS / WEIGHTS.sum()
    moved = np.abs(np.average(change, weights=WEIGHTS) - CLIP)  # from the average of the others
    assert moved == pytest.approx(2 * CLIP * share[3])
    run = played("server", config=["asked=0.0"])
    expected = by_hand([MULTIPLIER * CLIP / NODES / moved] * 2)
    assert epsilons(run, "add-or-remove-agent")[3] == pytest.approx(expected, rel=1e-3)


def test_shares_that_are_taken_to_be_equal_are_noticed(monkeypatch):
    right, wrong = "2.0 * average.clip * weight / total", "2.0 * average.clip / len(parts)"
    twin = mutant(central, right, wrong)
    monkeypatch.setattr(central.Averages, "charge", twin.Averages.charge)
    own = epsilons(played("server"))
    assert own[3] < 0.9 * by_hand([ratios()[3]] * 2)


def test_flowers_own_wrapper_moves_its_average_by_that_and_adds_that_noise(monkeypatch):
    from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.serverapp.strategy import (
        DifferentialPrivacyServerSideFixedClipping as Wrapper,
    )
    from flwr.serverapp.strategy import FedAvg
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_run_id", "_task_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    deviations = []
    monkeypatch.setattr(np.random, "normal", lambda at, by, size: deviations.append(by) or
                        np.zeros(size))  # fmt: skip

    def average(last):
        replies = []
        for i, n in enumerate(WEIGHTS.tolist()):
            change = [last, 0.0] if i == NODES - 1 else [0.1 * (i + 1), 0.3]
            content = {"a": ArrayRecord({"w": Array(np.array(change))}),
                       "m": MetricRecord({"num-examples": n})}  # fmt: skip
            asked = Message(RecordDict(), dst_node_id=i, message_type="train")
            replies.append(Message(RecordDict(content), reply_to=asked))
        one = Wrapper(FedAvg(), MULTIPLIER, CLIP, NODES)
        one.current_arrays = ArrayRecord({"w": Array(np.zeros(2))})
        return one.aggregate_train(1, replies)[0]["w"].numpy()

    moved = np.linalg.norm(average(1e6) - average(-1e6))
    rows = averages(played("server", config=["asked=0.0"]))
    last = rows[rows["agent"] == NODES - 1]
    assert np.allclose(last["sensitivity"], moved)
    assert np.allclose(last["scale"], deviations[:1])


def test_only_those_are_charged_whose_replies_are_in_an_average():
    run = played("server", config=["fraction=0.5"])
    rows = averages(run).query("agent >= 0")
    trained = [{*part["agent"]} for _, part in rows.groupby("round")]
    assert [len(one) for one in trained] == [2, 2]  # though all four evaluate
    own = epsilons(run)
    for i in range(NODES):
        many = [w for w in trained if i in w]
        parts = [ratios_among(i, w) for w in many]
        assert own[i] == pytest.approx(by_hand(parts), rel=1e-3) if many else own[i] == 0.0


def ratios_among(i, among):
    return (MULTIPLIER * CLIP / NODES) / (2 * CLIP * WEIGHTS[i] / WEIGHTS[[*among]].sum())


def test_a_deadline_that_leaves_out_nodes_makes_shares_larger():
    run = played("server", policy={"deadline": "2 s"}, config=["asked=0.0"])
    own = epsilons(run)
    assert own[3] == 0.0  # never in time
    assert own[0] == pytest.approx(by_hand([ratios_among(0, {0, 1, 2})] * 2), rel=1e-3)


def test_late_replies_are_charged_where_they_are_averaged():
    run = played("server", policy={"deadline": "2 s", "late": "carry"}, config=["asked=0.0"],
                 compute={"speed": ["40 /s", "40 /s", "40 /s", "3 /s"]})  # fmt: skip
    rows = averages(run).query("agent >= 0")
    assert {*rows.query("round == 1")["agent"]} == {0, 1, 2}
    assert {*rows.query("round == 2")["agent"]} == {0, 1, 2, 3}
    assert epsilons(run)[3] == pytest.approx(by_hand([ratios()[3]]), rel=1e-3)


def test_an_average_of_a_secure_sum_counts_as_one_without_noise():
    run = played("secret", "lines_client:secret", rounds=1)
    assert np.isinf(epsilons(run)).all()


def test_the_same_rows_on_another_network():
    from desim.runs.retime import retime

    run = played("server", config=["asked=0.0"])
    other = retime(run, network="4g")
    names = ["agent", "round", "release", "sensitivity", "scale"]
    assert averages(other)[names].equals(averages(run)[names])


def strategies():
    from flwr.serverapp import strategy as new

    head = "DifferentialPrivacy"
    fixed = getattr(new, f"{head}ServerSideFixedClipping")
    inside = getattr(new, f"{head}ClientSideFixedClipping")
    moving = getattr(new, f"{head}ServerSideAdaptiveClipping")
    own = type("Own", (fixed,), {})
    some = type("Some", (new.FedAvg,), {"_check_and_log_replies": lambda *own: ([], [])})
    replaced = fixed(new.FedAvg(), 1.0, 1.0, 4)
    replaced._add_noise_to_aggregated_arrays = lambda arrays: arrays
    return {
        "or Some are not Flower's own": fixed(some(), 1.0, 1.0, 4),
        "or FedAvg are not Flower's own": replaced,
        "weights are loss": fixed(new.FedAvg(weighted_by_key="loss"), 1.0, 1.0, 4),
        "ratio has no bound": moving(new.FedAvg(), 0.2, 4),
        "FedAdam makes of an average": fixed(new.FedAdam(), 1.0, 1.0, 4),
        "fixedclipping_mod around": inside(new.FedAvg(), 1.0, 1.0, 4),
        "noise_multiplier is 0": fixed(new.FedAvg(), 0.0, 1.0, 4),
        "Own is none of Flower's": own(new.FedAvg(), 1.0, 1.0, 4),
        "": fixed(new.FedProx(), 1.0, 1.0, 4),
    }


def test_what_is_not_known_is_infinite_with_the_reason():
    from flwr.clientapp import ClientApp
    from flwr.clientapp.mod import LocalDpMod, fixedclipping_mod, message_size_mod
    from flwr.serverapp import strategy as new

    for text, one in strategies().items():
        known = central.central(one, [[]])
        assert text in known.why, text
        assert bool(text) == bool(known.why) != bool(known.trusts)
    assert central.central(new.FedAvg(), [[]]) is None
    inside = strategies()["fixedclipping_mod around"]
    outer = LocalDpMod(1.0, 1.0, 1.0, 0.1)

    @wraps(fixedclipping_mod)
    def named_alike(message, context, call):
        return call(message, context)

    cases = [
        ([named_alike], False),
        ([fixedclipping_mod], True),
        ([message_size_mod, fixedclipping_mod], True),
        ([outer, fixedclipping_mod], False),
        ([fixedclipping_mod, outer], True),
    ]
    for mods, fine in cases:
        client = ClientApp(mods=mods)
        client.train()(lambda message, context: message)
        assert bool(central.central(inside, chains(client)).why) != fine


def test_so_says_a_run():
    run = played("app", "lines_client:app", config=["noise=adaptive"])
    assert np.isinf(run.account(view="participants", delta=DELTA).final).all()
    assert "trust" not in run.manifest["privacy"]
    assert "ratio has no bound" in " ".join(run.manifest["warnings"])


@pytest.mark.parametrize("beside", ["plain", "asked", "once"])
def test_what_an_app_makes_of_replies_beside_an_average_has_no_noise(beside):
    run = played("around", "lines_noise:asked", config=[f"wrong={beside}"])
    assert len(averages(run)) > 0
    assert np.isinf(epsilons(run)).all() == (beside != "once")
    assert ("went elsewhere" in " ".join(run.manifest["warnings"])) == (beside != "once")


def test_the_node_that_a_classic_server_asks_for_its_first_model_has_no_noise():
    run = played("classic", "lines_client:classic", config=["wrong=asked"])
    assert np.isinf(epsilons(run)).sum() == 1


def test_noise_that_is_lost_in_a_models_numbers_is_none():
    from flwr.app import Array, ArrayRecord
    from flwr.common import ndarrays_to_parameters

    cases = [
        (np.ones(2), 1.0, True),
        (np.ones(2, np.float32), 1e-6, True),
        (np.ones(2, np.float32), 1e-9, False),  # below a rounding
        (np.ones(2, int), 1.0, False),
        (np.ones(2, complex), 1.0, False),
        (np.array([1.0, np.nan]), 1.0, False),  # of a change that flwr does not clip
    ]
    for array, scale, hides in cases:
        assert central.hides(ArrayRecord({"w": Array(array)}), scale) == hides
        assert central.hides(ndarrays_to_parameters([array]), scale) == hides


def test_shares_below_zero_or_of_others_count_as_no_noise():
    one = central.Average([1, 2], [3.0, 1.0], 1.0, 1.0, None, True)
    assert one.counts({0: 3.0, 1: 1.0}, {0, 1})
    assert not one.counts({0: 3.0, 1: -1.0}, {0, 1})
    assert not one.counts({0: 3.0, 1: np.nan}, {0, 1})
    assert not one.counts({0: 0.0, 1: 0.0}, {0, 1})
    assert not one.counts({0: 3.0}, {0, 1})
    assert not one._replace(scale=0.0).counts({0: 3.0, 1: 1.0}, {0, 1})
