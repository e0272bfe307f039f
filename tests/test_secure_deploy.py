"""Sums that nobody sees the parts of, with real keys: masks cancel, thresholds, deployed runs."""

import secrets
import sys
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from mutant import mutant
from test_deploy import deploy, same
from test_trust import ADAPTIVE, scenario

import desim
from desim.deployments import fleet as fleet_module
from desim.deployments import masking, secure
from desim.deployments import place as place_module
from desim.deployments.deployed import refuse
from desim.errors import InputError, RunError
from desim.privacy.sums.protocol import EXCHANGES, Circle, Protocol
from desim.scenario.build import build
from desim.scenario.load import load

pytest.importorskip("cryptography")
KEYS, SHARES, INPUT, UNMASKING = range(len(EXCHANGES))
PROTOCOLS = {
    "secagg": Protocol(threshold=4.0),
    "secagg+": Protocol("secagg+", neighbours=4, threshold=2.0),
}


def test_enough_shares_tell_a_secret_and_fewer_do_not():
    def check(module):
        secret, places = secrets.randbelow(module.PRIME), (3, 1, 9, 4, 20, 6)
        some = module.shared(secret, 3, places)
        assert [module.revealed(some[k : k + 3]) for k in range(4)] == [secret] * 4
        assert module.revealed(some) == secret != module.revealed(some[:2])

    check(masking)
    for right, wrong in (("range(least - 1)", "range(least - 2)"), ("other - x", "other + x")):
        with pytest.raises(AssertionError):
            check(mutant(masking, right, wrong))


@pytest.mark.parametrize("bits", [4, 13, 24, 32, 33, 40])
def test_numbers_are_as_many_bytes_as_their_bits(bits):
    numbers = np.array([0, 1, 2**bits - 1, 2 ** (bits - 1)] * 2, masking.words(bits))
    for width in (1, 2, 8):
        body = masking.packed(numbers[:width], bits)
        assert len(body) == -(-width * bits // 8)
        assert masking.unpacked(body, width, bits).tolist() == numbers[:width].tolist()
        with pytest.raises(ValueError, match=f"numbers of {bits} bits"):
            masking.unpacked(body + b"0", width, bits)


# A sum without processes: members, and the relay between them.


class Play:
    """One sum of agents, of whom some are lost for the exchanges from one of these on."""

    def __init__(self, module, kind, bits=24, lost=(), width=64, value=None):
        self.who, protocol = np.array([0, 1, 2, 5, 8, 11, 13, 20]), PROTOCOLS[kind]
        self.circle = Circle(protocol, 7, 3, self.who)
        self.relay = module.Relay(self.circle, bits)
        self.members = {i: module.Member(i, 3, protocol, bits) for i in self.who.tolist()}
        rng, shape = np.random.default_rng(5), (len(self.who), width)
        self.numbers = rng.integers(0, 2**bits, shape) if value is None else np.full(shape, value)
        self.bits, self.lost = bits, dict(lost)
        self.seen, left = {}, np.ones(len(self.who), bool)
        self.sharing = self.came = left
        for exchange in range(len(EXCHANGES)):
            before = left
            left = left & [self.lost.get(i, 9) > exchange for i in self.members]
            for i in self.who[left].tolist():
                letter = self.relay.letter(exchange, i, before, self.sharing)
                self.take(exchange, i, self.answer(exchange, i, letter))
            self.sharing = left if exchange < INPUT else self.sharing
            self.came = left if exchange <= INPUT else self.came

    def answer(self, exchange, i, letter):
        own = self.numbers[self.who.tolist().index(i)].astype(float)
        return self.members[i].answer(exchange, letter, len(self.who), own)

    def take(self, exchange, i, body):
        if exchange == INPUT:
            self.seen[i] = masking.unpacked(body, self.numbers.shape[1], self.bits)
        else:
            self.relay.hear(exchange, i, body)

    @property
    def sum(self):
        """As the coordinator's process has it: of floats, which hold numbers below 2^53 alone."""
        masks = self.relay.masks(self.numbers.shape[1], self.sharing, self.came)
        seen = [self.seen[i].astype(float) for i in self.who[self.came].tolist()]
        return (np.add.reduce(seen) - masks) % 2.0**self.bits

    @property
    def wanted(self):
        return self.numbers[self.came].sum(axis=0) % 2**self.bits


LOST = {"nobody": {}, "some": {1: SHARES, 5: INPUT, 20: UNMASKING}}


@pytest.mark.parametrize("bits", [18, 40])
@pytest.mark.parametrize("kind", PROTOCOLS)
@pytest.mark.parametrize("name", LOST)
def test_masks_cancel_whoever_is_lost(kind, name, bits):
    play = Play(masking, kind, bits, LOST[name].items())
    assert play.came.sum() == (8 if name == "nobody" else 6)
    assert play.sum.tolist() == play.wanted.tolist()


WRONG = [
    ("mask(total, seed, 1 if j > self.agent else -1)", "mask(total, seed, 1)"),
    ("mask(total, seed, 1 if j > i else -1)", "mask(total, seed, -1 if j > i else 1)"),
    ('mask(total, self.seed.to_bytes(SECRET, "little"), 1)', "pass"),
    ("for i in self.near(j, came)", "for i in self.near(j, sharing)"),
    ("who[sharing & ~came]", "who[:0]"),
]


@pytest.mark.parametrize(("right", "wrong"), WRONG)
def test_wrong_masks_do_not_cancel(right, wrong):
    lost = {5: INPUT, 8: INPUT}  # near each other or not: one of the two has masked for the other
    play = Play(mutant(masking, right, wrong), "secagg", lost=lost.items())
    assert play.sum.tolist() != play.wanted.tolist()


def test_masks_beyond_what_floats_hold_are_cut():
    uncut = mutant(masking, "total & total.dtype.type((1 << self.bits) - 1)", "total")
    for module, exact in ((masking, True), (uncut, False)):
        play = Play(module, "secagg", 40, value=7)
        assert (play.sum.tolist() == play.wanted.tolist()) == exact


def test_what_the_relay_has_is_as_good_as_random():
    """Of numbers that are all 3: means of uniform ones, within five deviations; pairs as well."""

    def far(module):
        play = Play(module, "secagg+", 16, width=2048, value=3)
        seen = np.array([*play.seen.values()], float)
        pairs = (seen[:-1] - seen[1:]) % 2**16
        means = np.concatenate([seen.mean(axis=1), pairs.mean(axis=1)])
        return np.abs(means - 2**15).max() * np.sqrt(12 * 2048) / 2**16

    assert far(masking) < 5.0
    for right, wrong in (("part += grown", "pass"), ("ChaCha20(seed,", "ChaCha20(bytes(32),")):
        assert far(mutant(masking, right, wrong)) > 5.0


def test_fewer_shares_than_the_threshold_unmask_nothing():
    most = {i: UNMASKING for i in (0, 1, 2, 5, 8)}
    play = Play(masking, "secagg", lost=most.items())
    with pytest.raises(RunError, match=r"found 3 shares of a secret of agent 0; allowed: 4"):
        play.sum  # noqa: B018
    play.circle.least = 3  # a relay that tries with those that it has learns another number
    assert play.sum.tolist() != play.wanted.tolist()
    assert Play(masking, "secagg", lost=[*most.items()][1:]).sum.tolist() == play.wanted.tolist()


def test_an_agent_declines_what_would_tell_more():
    names = masking.listed
    play = Play(masking, "secagg", lost={i: UNMASKING for i in (0, 1, 2, 5, 8)}.items())
    own, everybody = play.members[0], play.who.tolist()

    def refused(words, letter, exchange=UNMASKING):
        before = own.exchange
        with pytest.raises(masking.Declined, match=words):
            own.answer(exchange, letter, 8, np.zeros(64))
        own.exchange = before

    refused("found exchange 2 of a sum after 2", b"", INPUT)  # a second one with the same masks
    few = names([(i, b"") for i in everybody[:3]]) + names(
        [(i, b"") for i in everybody[3:]], masking.LOST
    )
    refused("found numbers of 3 agents; allowed: 4 or more", few)
    both = names([(i, b"") for i in everybody]) + names([(5, b"")], masking.LOST)
    refused("others than those whose masks", both)
    refused("others than those whose masks", names([(i, b"") for i in [*everybody[:7], 9]]))
    refused("its numbers did not come", names([(i, b"") for i in everybody], masking.LOST))
    own.ciphers[5] = own.ciphers[5][:-1] + bytes([own.ciphers[5][-1] ^ 1])
    refused("that its sender did not encrypt", names([(i, b"") for i in everybody]))
    own.exchange = KEYS
    keys = own.cipher_key.public + own.mask_key.public
    refused("found keys of 1 agents; allowed: 4", names([(0, keys)]), SHARES)
    refused("or not its own", names([(i, bytes(64)) for i in everybody]), SHARES)
    nobody = [(j, keys) for j in everybody[1:]]
    for odd in (masking.NAME.pack(masking.LOST), b"\xff" * 4):  # place 0: the secret itself; 2^32
        refused("keys of agent .*, of none", names([(0, keys), *nobody]) + odd + keys, SHARES)


@pytest.mark.parametrize("kind", PROTOCOLS)
def test_neighbourhoods_are_those_that_are_counted(kind):
    rng = np.random.default_rng(3)
    for n in (2, 3, 6, 9):
        circle = Circle(PROTOCOLS[kind], 1, 2, np.arange(n))
        around, left = circle.around(), rng.random(n) < 0.5
        assert around.shape == (n, circle.degree + 1)
        assert left[around].sum(axis=1).tolist() == circle.near(left).tolist()
        assert all(i in around[j] for i in range(n) for j in around[i])


# Deployed.


def test_the_clock_begins_before_messages_are_read():
    """Else what comes while a large state is still under way would be here at -inf s."""

    def order(module):
        place, read = object.__new__(module.Place), []
        place.control, place.origin, place.read = "control", np.inf, read.extend
        place.strangers = SimpleNamespace(due=np.inf)
        place.poll = SimpleNamespace(wait=lambda until: ["line", "control"])
        place.wait()
        return read

    assert order(place_module) == ["control"]
    assert order(mutant(place_module, "ready = [self.control]", "pass")) != ["control"]


def test_the_clock_begins_once_states_have_left():
    def left(module):
        whole, steps = [b"state"] * 3, []
        fleet = module.Fleet.__new__(module.Fleet)
        fleet.agents, fleet.dead, fleet.lead = 1, {}, 0.0
        fleet.controls = {0: SimpleNamespace(waiting=whole)}
        fleet.wait = lambda until: steps.append(whole.pop())
        fleet.send = lambda agent, kind, fields: steps.append(kind)
        fleet.start()
        return steps

    assert left(fleet_module) == [b"state"] * 3 + ["start"]
    assert left(mutant(fleet_module, "self.controls[i].waiting", "False")) == ["start"]


@pytest.fixture
def plain(monkeypatch):
    """Nothing is compiled, and no process is left when a test is over."""
    monkeypatch.setenv("DESIM_COMPILE", "never")
    before = set(psutil.Process().children(recursive=True))
    yield
    assert set(psutil.Process().children(recursive=True)) <= before


def played(privacy, **changes):
    own = {"noise_seed": "scenario", **privacy}
    ways = {"compute": {"speed": "2000 /s"}, "observe": {"iterates": True}, "stop": {"rounds": 2}}
    return scenario(privacy=own, **{**ways, **changes})


@pytest.mark.usefixtures("plain")
def test_a_trusted_coordinator_has_the_bits_of_the_simulation():
    _, real = same(played({"clip": ADAPTIVE}))
    assert (real.releases.agent == -1).sum() == 2
    assert np.isinf(real.account().worst)  # a test: its noise is of the scenario's seed


@pytest.mark.usefixtures("plain")
def test_a_sum_of_masked_numbers_has_the_bits_of_the_simulation(monkeypatch):
    rows = []

    def heard(self, number, agent, body, inner=secure.Masked.heard):
        row = inner(self, number, agent, body)
        rows.append(row) if number == INPUT else None
        return row

    monkeypatch.setattr(secure.Masked, "heard", heard)
    own = {"protocol": "secagg+", "neighbours": 4, "threshold": 3, "granularity": 0.05}
    _, real = same(played({"trust": "secure-sum", "secure": own}))
    assert len(rows) == 12
    far = [np.minimum(row, 2.0**24 - row).max() for row in rows]
    assert min(far) > 2.0**16  # levels; what they hide is some tens of levels from 0
    assert real.manifest["engine"] == "deployed"


@pytest.mark.usefixtures("plain")
def test_an_agent_that_is_lost_after_its_shares_is_recovered():
    slow = {"speed": "300 /s", "slow": {"fraction": "17 %", "factor": 150}}
    own = {"threshold": 3, "bits": 17}
    late = {"deadline": "3 s"}  # of others none is so late, however busy the machine
    given = played({"trust": "secure-sum", "secure": own}, compute=slow, policy=late)
    simulated, real = desim.run(given), deploy(given)
    assert np.array_equal(simulated.iterates, real.iterates)
    ends = [r.events[r.events.kind == "aggregate"].value.tolist() for r in (simulated, real)]
    assert ends == [[6, 6, 5, 5] * 2] * 2
    sums = [r.releases[r.releases.agent < 0].scale.tolist() for r in (simulated, real)]
    assert sums[0] == sums[1]


@pytest.mark.usefixtures("plain")
def test_noise_of_the_operating_system_and_no_replies_in_the_run():
    real = deploy(played({"trust": "secure-sum", "secure": {}, "noise_seed": "os"}))
    assert real.status == "done"
    assert real.state["released"].shape == (6, 0)
    assert real.account(view="coordinator").worst < np.inf
    simulated = desim.run(played({"trust": "secure-sum", "secure": {}}))
    assert not np.array_equal(real.model, simulated.model)


@pytest.mark.usefixtures("plain")
def test_without_the_library_it_is_refused(monkeypatch):
    simulation = build(load(played({"trust": "secure-sum"})))
    refuse(simulation)
    for name in [one for one in sys.modules if one.startswith("cryptography.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(InputError, match=r"trust: secure-sum: .*pip install 'desim\[deploy\]'"):
        refuse(simulation)
