"""Runs whose replies are added up unseen: exchanges on the clock, rows of the ledger, refusals."""

import math
from itertools import pairwise

import numpy as np
import pytest
from mutant import mutant
from scipy import linalg
from test_engines import differences
from test_resume import killed, unlike
from test_trust import CLIP, EPOCHS, STEP, Z, drawn, scenario, shortened

import desim
from desim.engine import secure_sum
from desim.errors import InputError, RunError
from desim.methods import fedavg
from desim.numerics import discrete_gaussian, keys, skellam
from desim.numerics.keys import Stream
from desim.privacy.sums import protocol, shares
from desim.scenario.build import build
from desim.scenario.load import load

LOSSY = {
    "link": {
        "latency": {"uniform": ["5 ms", "40 ms"]}, "bandwidth": "1 Mbit/s", "loss": "8 %",
        "on_loss": "drop", "timeout": "60 ms",
    }
}  # fmt: skip


def secured(secure=None, **changes):
    """The scenario of a trusted coordinator, which nobody trusts any more."""
    own = {"trust": "secure-sum", "secure": secure or {}} | changes.pop("privacy", {})
    return scenario(privacy=own, **changes)


CASES = {
    "all": secured(),
    "skellam": secured({"noise": "skellam", "bits": 18}, algorithm={"name": "feddyn"}),
    "lossy": secured(
        {"threshold": "50 %", "tolerate": "20 %", "agree": "2 ms"}, network=LOSSY,
        policy={"deadline": "1 s"}, algorithm={"name": "scaffold"},
    ),
    "circle": secured(
        {"protocol": "secagg+", "neighbours": 2, "threshold": 2}, policy={"quorum": 5},
        participation={"bernoulli": "90 %"},
    ),
}  # fmt: skip


# The numbers, by another way: agent by agent and number by number.


def unseen(problem, made, law, wrong=""):
    """Models (rounds + 1, dim) of FedAvg whose changes are added up as whole numbers."""
    trust, seed, dim = made.settings.trust, made.settings.seed, problem.dim
    own, width, m = trust.lattice(dim), 1 << (dim - 1).bit_length(), 2.0**trust.bits
    rotation = linalg.hadamard(width) / math.sqrt(width)
    rows = [slice(*pair) for pair in pairwise(problem.start)]
    x = np.zeros(dim)
    models = [x]
    for k, who in enumerate(drawn(made), 1):
        drew = keys.uniforms(seed, Stream.SUM, size=width, round=k, step=1)
        signs = np.where(drew < 0.5, -1.0, 1.0)
        total = np.zeros(width)
        for i in who:
            y, A, b = x.copy(), problem.A[rows[i]], problem.b[rows[i]]
            for _ in range(EPOCHS):
                y = y - STEP * 2 * A.T @ (A @ y - b) / len(A)
            change = y - x if wrong == "unclipped" else shortened(y - x, CLIP)
            z = np.pad(change, (0, width - dim)) * signs @ rotation / own.gamma
            key, k1, c0, _ = keys.words(seed, Stream.SUM, agent=i, round=k, step=2)
            attempt = 0
            while True:
                u = [keys.uniform(key, k1[0], c0[0], attempt << 32 | j) for j in range(width)]
                level = np.floor(z + u)
                if wrong == "unclipped" or np.linalg.norm(level) <= own.norm:
                    break
                attempt += 1
            key, k1, c0, _ = keys.words(seed, Stream.NOISE, agent=i, round=k, step=3)
            spread = own.deviation if wrong != "whole" else own.deviation * math.sqrt(6)
            if law == "skellam":
                noise = skellam.draws(key, k1, c0, spread**2, width)[0]
            else:
                noise = discrete_gaussian.draws(key, k1, c0, np.array([spread]), width)[0]
            total = total + (level + noise) % m
        total = (total + m / 2) % m - m / 2 if wrong != "unwrapped" else total % m
        back = own.gamma * (total @ rotation)
        x = x + ((back * signs if wrong != "unturned" else back)[:dim]) / len(who)
        models.append(x)
    return np.array(models)


@pytest.mark.parametrize("law", ["ddgauss", "skellam"])
def test_models_are_those_of_whole_numbers_added_up_one_by_one(law):
    made = build(load(secured({"noise": law, "bits": 16}, observe={"iterates": True})))
    run = desim.run(secured({"noise": law, "bits": 16}, observe={"iterates": True}))
    wanted = unseen(made.problem, made, law)
    assert np.abs(run.model - wanted).max() < 1e-10
    for wrong in ("unclipped", "whole", "unwrapped", "unturned"):
        assert np.abs(run.model - unseen(made.problem, made, law, wrong)).max() > 1e-6


def test_without_noise_the_sum_is_that_of_a_trusted_coordinator():
    still = {"noise": {"multiplier": 0.0}}
    fine = desim.run(secured({"bits": 40}, privacy=still, observe={"iterates": True}))
    plain = desim.run(scenario(privacy=still, observe={"iterates": True}))
    assert np.abs(fine.model - plain.model).max() < 1e-7
    assert fine.account(view="coordinator").worst == math.inf
    assert fine.manifest["time"] > plain.manifest["time"]


# Engines, clocks and bytes.


@pytest.mark.parametrize("name", CASES)
def test_the_engines_agree_to_the_last_bit(name):
    one, other = (desim.run(CASES[name], overrides={"engine": e}) for e in ("cohort", "agents"))
    assert (one.manifest["engine"], other.manifest["engine"]) == ("cohort", "agents")
    assert one.manifest["rounds"] == 12
    assert differences(one, other) == []


def test_compiled_rounds_are_left_to_the_cohort_engine():
    assert build(load(secured(engine="auto"))).engine == "cohort"


def test_bytes_are_those_of_the_four_exchanges():
    run = desim.run(secured())
    sent = run.events[run.events.kind == "send"].groupby("round").bytes.sum()
    # Of one agent of six, with keys of 32 bytes and shares of 36, ciphertexts of 108 and names of
    # 4: two keys; those of six, five ciphertexts; five, and three doubles, four numbers of 24 bits;
    # six names, and six with six shares.
    one = (0 + 64) + (6 * 68 + 5 * 112) + (5 * 112 + 24 + 12) + (24 + 6 * 40)
    assert sent.tolist() == [6 * one] * 12


def test_seconds_are_those_of_the_four_exchanges():
    secure = {"agree": "1 s", "expand": "8 bit/s", "share": "10 ms"}
    run = desim.run(secured(secure, compute={"speed": "100 /s"}, stop={"rounds": 2}))
    rows = run.events[(run.events.kind == "compute") & (run.events["round"] == 2)]
    steps = EPOCHS * 8 / 100
    own = rows[rows.agent == 3].seconds.to_numpy()
    # Two pairs of keys; five secrets and twelve shares; five secrets, six masks of twelve bytes.
    assert own == pytest.approx([2.0, 5.0 + 0.12, 5.0 + 6 * 12 + steps, 0.0])
    # Six seeds are put together of four shares each, and grow.
    assert rows[rows.agent == -1].seconds.to_numpy() == pytest.approx([6 * 4 * 0.01 + 6 * 12])


def test_devices_that_take_no_time_take_none_for_secrets():
    run = desim.run(secured({"agree": "1 s"}, compute={"speed": "inf"}, stop={"rounds": 2}))
    rows = run.events[run.events.kind == "compute"]
    assert (rows[rows.agent >= 0].seconds == 0.0).all()


def test_slow_devices_take_longer_for_secrets():
    slow = {"speed": "100 /s", "slow": {"fraction": "50 %", "factor": 4}}
    run = desim.run(secured({"agree": "1 s", "share": "0 s"}, compute=slow, stop={"rounds": 1}))
    rows = run.events[(run.events.kind == "compute") & (run.events.agent >= 0)]
    first = rows.groupby("agent").seconds.first().round(9).tolist()
    assert sorted(first) == [2.0] * 3 + [8.0] * 3


def collected(run):
    """How many answered each exchange, (rounds, 4); of those that were not made 0."""
    rows = run.events[run.events.kind == "aggregate"].sort_values(["round", "time"])
    found = np.zeros((12, 4), int)
    for k, mine in rows.groupby("round"):
        found[k - 1, : len(mine)] = mine.value
    return found


def test_who_is_lost_costs_the_coordinator_a_mask_for_each_that_is_left():
    slow = {"agree": "10 ms", "expand": "1000 Gbit/s", "share": "0 s", "threshold": "50 %"}
    run = desim.run(secured(slow, network=LOSSY, policy={"deadline": "3 s"}))
    found = collected(run)
    whole = (found[:, 3] >= 3) & (found[:, 2] >= 3)
    assert 0 < whole.sum() < 12 or whole.all()
    lost = found[:, 1] - found[:, 2]
    rows = run.events[(run.events.kind == "compute") & (run.events.agent == -1)]
    seconds = rows.groupby("round").seconds.sum().reindex(range(1, 13), fill_value=0.0)
    assert (lost[whole] > 0).any()
    assert seconds.to_numpy()[whole] == pytest.approx((lost * found[:, 2] * 0.01)[whole], abs=1e-6)


# The ledger.


def sums(run):
    """The rows of sums."""
    return run.releases[run.releases.agent < 0]


def test_a_row_counts_the_shares_that_are_in_the_sum():
    run, made = desim.run(CASES["lossy"]), build(load(CASES["lossy"]))
    found, rows = collected(run), sums(run)
    enough = (found[:, 2] >= 3) & (found[:, 3] >= 3)
    came = np.where(enough, found[:, 2], 0)
    assert len({*came.tolist()}) > 2
    sigma = Z * CLIP / math.sqrt(0.8 * 6)  # of a share: with 20 % less all noise would be there
    assert rows.scale.to_numpy() == pytest.approx(sigma * np.sqrt(came))
    own = made.settings.trust.lattice(2 * 3)  # of a change, and of one of control variates
    wanted = [2 * shares.reach(own, n, False) if n else 0.0 for n in came.tolist()]
    assert rows.sensitivity.to_numpy() == pytest.approx(wanted)
    assert (rows.scale[came >= 5] >= Z * CLIP).all()


def epsilon(rho, delta=1e-5):
    """The least epsilon of rho-zCDP over orders (Canonne, Kamath, Steinke 2020, Prop. 12)."""
    a = np.exp(np.linspace(np.log(1.01), np.log(500), 20000))
    return (rho * a + np.log1p(-1 / a) - np.log(delta * a) / (a - 1)).min()


@pytest.mark.parametrize("name", ["all", "skellam"])
def test_epsilon_is_that_of_all_sums_for_everybody_who_looks(name):
    run = desim.run(CASES[name])
    rows = sums(run)
    rho = 0.125 * ((rows.sensitivity / rows.scale) ** 2).sum()  # of an agent that is left out
    for view in ("eavesdropper", "coordinator", "participants", "final-model"):
        found = run.account(view=view)
        assert epsilon(rho) * (1 - 1e-9) <= found.worst <= epsilon(rho) * 1.02
        assert any("masks hold" in one for one in found.assumptions)
        assert not any("trusted" in one for one in (*found.assumptions, *found.flags))
        assert "the seed of the noise is secret" in found.assumptions
        assert not any("real numbers" in one for one in found.assumptions)
    together = run.account(view="collusion:[0, 1]")
    assert any(one.startswith("optimistic: collusion:[0, 1] knows") for one in together.flags)
    replaced = run.account(view="coordinator", relation="agent").worst
    assert replaced == pytest.approx(epsilon(4 * rho), rel=0.02)


def test_a_void_round_leaves_the_model_and_says_so():
    strict = secured({"threshold": "100 %"}, network=LOSSY, policy={"deadline": "1 s"})
    run = desim.run(merged_iterates(strict))
    found, rows = collected(run), sums(run)
    void = (found < 6).any(axis=1)
    assert void.any()
    stays = (np.diff(run.model, axis=0) == 0.0).all(axis=1)
    assert stays.tolist() == void.tolist()
    assert (rows.scale == 0.0).tolist() == (rows.sensitivity == 0.0).tolist() == void.tolist()
    said = [one for one in run.manifest["warnings"] if "is void" in one]
    assert [int(one.split("round ")[1].split()[0]) - 1 for one in said] == [*np.flatnonzero(void)]
    assert run.account(view="coordinator").worst < math.inf


def test_a_round_whose_sum_would_be_told_in_parts_is_void():
    """Two neighbours, threshold 2: between lost agents two have masks with each other alone."""
    circle = {"protocol": "secagg+", "neighbours": 2, "threshold": 2}
    run = desim.run(
        secured(circle, problem={"agents": 12}, network=LOSSY, policy={"deadline": "1 s"})
    )
    said = [one for one in run.manifest["warnings"] if "parts of the circle" in one]
    assert said
    assert "each of which would have its own sum" in said[0]
    for one in said:
        row = sums(run).iloc[int(one.split("round ")[1].split()[0]) - 1]
        assert row.scale == row.sensitivity == 0.0
        at = run.events[(run.events.kind == "aggregate") & (run.events["round"] == row["round"])]
        assert len(at) == 3  # nobody is asked for a secret


def merged_iterates(given):
    """The scenario with its models kept."""
    return {**given, "observe": {**given["observe"], "iterates": True}}


def test_a_target_is_met_by_what_is_planned():
    asked = {"target": {"epsilon": 5.0, "delta": 1e-5}, "noise": {"kind": "gaussian"}}
    given = secured({"tolerate": "20 %"}, privacy=asked)
    assert desim.run(given).account(view="coordinator").worst < 5.0  # nobody is missing
    assert desim.run(secured(privacy=asked)).account(view="coordinator").worst == pytest.approx(
        5.0, rel=1e-3
    )


# What is refused.


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"secure": {"threshold": 7}}, "threshold: found 7, but secrets are shared among 6"),
        ({"secure": {"bits": 4}}, "bits: found 4, .*; allowed: more bits"),
        ({"secure": {"granularity": 1e-6, "bits": 16}}, "wraps around with a probability of up to"),
        ({"secure": {"neighbours": 4}}, "neighbours without protocol: secagg\\+"),
        ({"secure": {"protocol": "secagg+", "neighbours": 3}}, "an even number"),
        ({"secure": {"bits": 40, "noise": "skellam"}}, "levels from an agent; allowed: fewer bits"),
        ({"secure": {"protocol": "secagg+", "neighbours": 6}}, "found 6, but there are 5 others"),
        ({"secure": {"tolerate": "100 %"}}, "tolerate: found 100 %, so that nobody is left"),
        ({"secure": {"expand": 0}}, "expand: found 0, with which no mask is ever there"),
        ({"secure": {"granularity": 1e-300, "bits": 40}}, "wraps around with a probability of up"),
        ({"privacy": {"clip": 1e300}}, "clip: found 1e.300, whose square is beyond what"),
        ({"policy": {"quorum": 3}}, "quorum: found 3, too few for the 4 shares that make a secret"),
        ({"problem": {"agents": 1}}, "trust: found secure-sum of one agent"),
        ({"algorithm": {"name": "feddyn", "reply": "model"}}, "reply: found model with .* secure"),
        ({"codec": "float32"}, "codec: found one with privacy.trust: secure-sum"),
        ({"policy": {"buffer": 3}}, "policy: found buffer with privacy.trust: secure-sum"),
        ({"policy": {"deadline": "1 s", "late": "carry"}}, "found late: carry"),
        ({"policy": {"adaptive": {"mad": 3}}}, "policy: found adaptive"),
        ({"privacy": {"clip": {"start": 1.0, "quantile": 0.5, "rate": 0.2, "noise": 5.0}}},
         "clip: found one that follows a quantile, with trust: secure-sum"),
        ({"privacy": {"noise": {"sigma": 1.0, "decay": 0.9}}}, "changes from round to round"),
        ({"privacy": {"trust": "coordinator"}}, "found secure without trust: secure-sum"),
    ],
)  # fmt: skip
def test_what_cannot_be_added_up_unseen_is_refused(changes, words):
    given = secured(changes.pop("secure", None), **changes)
    with pytest.raises(InputError, match=words):
        build(load(given))


def test_replies_that_are_not_as_long_as_the_call_are_told(monkeypatch):
    train = fedavg.FedAvg.train
    wide = lambda self, us, x: np.hstack([train(self, us, x)] * 2)  # noqa: E731
    monkeypatch.setattr(fedavg.FedAvg, "train", wide)
    with pytest.raises(RunError, match="found replies of 6 numbers to 3 with trust: secure-sum"):
        desim.run(secured())


def calling(times, change):
    """A coordinator's program with so many sums a round, of replies that `change` has changed."""

    def coordinator(self, hub):
        hub.start(x=self.x0)
        hub.publish(self.x0[0])
        while hub.open:
            who = hub.invite()
            for _ in range(times):
                hub.call(who, self.train, self.x0[0], work=self.local.work)
                replies = yield hub.collect()
                total, _ = hub.total(change(replies))
            hub.publish(total)

    return coordinator


def test_programs_with_other_sums_are_told(monkeypatch):
    monkeypatch.setattr(fedavg.FedAvg, "coordinator", calling(1, lambda replies: replies))
    assert desim.run(secured()).manifest["status"] == "done"
    halves = calling(1, lambda replies: replies._replace(payload=0.5 * replies.payload))
    monkeypatch.setattr(fedavg.FedAvg, "coordinator", halves)
    with pytest.raises(RunError, match=r"hub\.total of other replies than hub\.collect gave"):
        desim.run(secured())
    monkeypatch.setattr(fedavg.FedAvg, "coordinator", calling(2, lambda replies: replies))
    with pytest.raises(RunError, match="found a second sum in round 1 with trust: secure-sum"):
        desim.run(secured())


@pytest.mark.parametrize(
    ("right", "wrong", "check"),
    [
        ("up = max(many - 1, 0) * (", "up = many * (", "bytes"),
        ("np.maximum(near - 1, 0) * works.keys, near *", "near * works.keys, near *", "seconds"),
        ("float(secrets * self.least", "float(secrets * 3", "seconds"),
        ("self.near(came)[lost].sum()", "self.near(came)[came].sum()", "lost"),
    ],
)
def test_other_exchanges_are_noticed(right, wrong, check, monkeypatch):
    monkeypatch.setattr(secure_sum, "Circle", mutant(protocol, right, wrong).Circle)
    checks = {
        "bytes": test_bytes_are_those_of_the_four_exchanges,
        "seconds": test_seconds_are_those_of_the_four_exchanges,
        "lost": test_who_is_lost_costs_the_coordinator_a_mask_for_each_that_is_left,
    }
    with pytest.raises(AssertionError):
        checks[check]()


def test_rows_by_who_was_invited_are_noticed(monkeypatch):
    def summed(self, own, shares):
        return self._row(2.0, self.deviation(1, self.clip)) if shares else self._row(0.0, 0.0)

    monkeypatch.setattr(secure_sum.Secure, "summed", summed)
    with pytest.raises(AssertionError):
        test_a_row_counts_the_shares_that_are_in_the_sum()


@pytest.mark.parametrize("engine", ["cohort", "agents"])
def test_a_killed_run_goes_on(engine, tmp_path, monkeypatch):
    written = secured(engine=engine, stop={"rounds": 40})
    whole = desim.run(written)
    assert killed(written, tmp_path / "a", monkeypatch, 3, rows=40).status == "interrupted"
    assert unlike(whole, desim.resume(tmp_path / "a")) == []
