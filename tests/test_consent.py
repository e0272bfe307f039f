"""A dishonest coordinator, or neighbour, asks an agent for more than its method releases."""

import copy
import os
from types import SimpleNamespace

import numpy as np
import pytest
from cases import CASES, STAR, one_each
from test_deploy import deploy, plain, scenario  # noqa: F401
from test_join import Waiting, joining

import desim
from desim.deployments import consent, deployed, join, peer, station
from desim.deployments import place as places
from desim.deployments.consent import FINE, Asked, Consent, form, largest, terms_of
from desim.deployments.formats import LETTER, Declined, Frame, Message, Torn
from desim.engine.budgets import Spending
from desim.errors import InputError, RunError
from desim.method import Mechanism, Terms, View, gradient
from desim.methods.dp_admm import DPADMM
from desim.runs.recording import prepare
from desim.scenario.load import load

NOISE = {"noise": {"kind": "gaussian", "sigma": 2.0}}
PRIVATE = scenario(
    "dp-admm", 3, algorithm={"rho": 1.0, "eta": 0.5}, problem={"clip": 1.0}, privacy=NOISE,
    observe={"metrics": [], "iterates": False},
)  # fmt: skip


PAIR = {**PRIVATE, "problem": {**PRIVATE["problem"], "agents": 2}}  # fewer processes


def lying(monkeypatch, change):
    """A coordinator whose second call of agent 1 is what change(station, sent, fields) makes of it.

    change returns the payload that goes out, or None for the true one.
    """
    order = station.Station._order

    def odd(self, kind, payload, fields, arrays):
        sent = self.sent[self.number]
        if (sent.agent, sent.round_) == (1, 2):
            fields = copy.deepcopy(fields)
            other = change(self, sent, fields)
            payload = payload if other is None else other
        return order(self, kind, payload, fields, arrays)

    monkeypatch.setattr(station.Station, "_order", odd)


def less_noise(made, sent, fields):
    fields["terms"][4] = 1e-9


def no_noise(made, sent, fields):
    fields["terms"] = [0, 0, 0.0, None, 0.0, None, None]


def twice(made, sent, fields):
    sent.round_ = 1


def too_often(made, sent, fields):
    sent.round_ = 4


def another_function(made, sent, fields):
    fields["job"]["name"] = "ascend"


def other_options(made, sent, fields):
    fields["job"] |= {"bound": {"0": 1}, "given": 1}


def training_on_news(made, sent, fields):
    made.news[1][0][0]["job"]["name"] = "train"


def no_number(made, sent, fields):
    return np.array([np.nan, 0.0, 0.0, 0.0])


def too_large(made, sent, fields):
    return np.array([1e300, 0.0, 0.0, 0.0])


def odd_news(made, sent, fields):
    order, news, arrays = made.news[1][0]
    made.news[1][0] = order, np.full_like(news, np.inf), arrays


def news_again(made, sent, fields):
    made.news[1] *= 2


def another_state(made, sent, fields):
    made.fleet.send(1, "state", {}, {"x": np.zeros(4)})


ATTACKS = {
    less_noise: ("found terms gaussian of scale 1e-09", "_require_terms"),
    no_noise: ("found terms none of scale 0.0", "_require_terms"),
    twice: (r"found exchange 0 of round 1, whose noise serves one reply", "_require_unused"),
    too_often: (r"found round 4; allowed: 1 to 3", "_require_round"),
    another_function: (r"found the job \[.ascend", "_require_job"),
    other_options: (r"found the job \[.train.*0.*1", "_require_job"),
    training_on_news: (r"found the job \[.train", "_require_job"),
    no_number: ("payload: found what is no number", "_require_numbers"),
    too_large: ("payload: found what is no number up to", "_require_numbers"),
    odd_news: ("news0: found what is no number", "_require_numbers"),
    news_again: (
        "found news 2 of round 1, after round 1; allowed: 1 in a round",
        "_require_seldom",
    ),
    another_state: ("found a state after a call", "to_start"),
}


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda one: one.__name__)
def test_an_agent_declines_what_its_method_does_not_ask_for(attack, monkeypatch, tmp_path):
    lying(monkeypatch, attack)
    with pytest.raises(RunError, match=f"agent 1: .*{ATTACKS[attack][0]}"):
        deploy(PAIR, out=tmp_path / "run")
    kept = desim.open(tmp_path / "run").manifest
    assert kept["clock"]["refused"] == 1
    assert any("agent 1 declined a call: " in text for text in kept["warnings"])


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda one: one.__name__)
def test_a_check_that_is_left_out_is_noticed(attack, monkeypatch, tmp_path):
    """The mutants: each check does nothing, or, of terms, what a call says is believed."""
    name = ATTACKS[attack][1]
    nothing = {"_require_unused": lambda *_: 0}.get(name, lambda *_: None)
    monkeypatch.setattr(Consent, name, nothing)
    if name == "_require_terms":
        monkeypatch.setattr(Consent, "to_call", believing)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test_an_agent_declines_what_its_method_does_not_ask_for(attack, monkeypatch, tmp_path)


def believing(self, round_, order, payload):
    """As it was: what a call says is believed."""
    return terms_of(order.fields["terms"], self.agent, 4)


def replies_to(attack, monkeypatch):
    """Replies of agent 1 to its calls, of whatever round, while a coordinator lies."""
    came, use = [], station.Station.use
    lying(monkeypatch, attack)
    monkeypatch.setattr(
        station.Station, "use", lambda self, i: (came.append((i, self._values(i))), use(self, i))
    )
    deploy({**PAIR, "stop": {"rounds": 2}})
    return [row for i, row in came if i == 1]


def test_what_a_believing_agent_gives_away(monkeypatch):
    """As it was: two replies with one noise, whose difference is one of exact gradients."""

    def again(made, sent, fields):
        twice(made, sent, fields)
        made.news[1].clear()
        return np.zeros(4)

    monkeypatch.setattr(Consent, "to_call", believing)
    one, other = replies_to(again, monkeypatch)
    data, rho, eta = prepare(load(PAIR)).simulation.problem.data, 1.0, 0.5
    slopes = [gradient(np.array([1]), at[None], data)[0] for at in (np.zeros(4), one)]
    hidden = (one / eta + slopes[0] - slopes[1]) / (rho + 1.0 / eta)
    np.testing.assert_allclose(other - one, hidden, rtol=0, atol=1e-12)


def test_a_budget_is_the_agents_own(monkeypatch):
    given = {**PRIVATE, "privacy": {"noise": {"kind": "gaussian", "sigma": 0.25}, "budget": 1.5}}
    given = {**given, "stop": {"rounds": 40}}
    honest = deploy(given)
    assert honest.manifest["reason"] == "privacy.budget: every agent has retired"
    assert 2 < honest.manifest["rounds"] < 40
    monkeypatch.setattr(Spending, "affordable", lambda self, who, *_: who)
    with pytest.raises(RunError, match=r"privacy.budget: found a call that would cost epsilon"):
        deploy(given)
    monkeypatch.setattr(Consent, "_require_budget", lambda *_: None)  # the mutant
    assert deploy(given).manifest["rounds"] == 40


def consenting(rounds=3.0, once=False):
    """Agent 1 of four, as `dp-admm` in PRIVATE has it."""
    simulation = prepare(load(PRIVATE)).simulation
    method = simulation.method
    method.once = once
    settings = SimpleNamespace(rounds=rounds, problem=simulation.problem)
    asked = Asked({(0, '["train", 0, {}]')}, {'["ascend", 0, {}]'})
    return Consent(SimpleNamespace(settings=settings, filter=None), method, 1, asked), method


def said(method, round_, exchange=0):
    terms = consent.terms_for(method.planned(round_), 1)
    job = {"name": "train", "given": 0, "bound": {}}
    return Message("order", {"terms": terms, "exchange": exchange, "job": job}, {})


def test_addresses_of_noise_are_used_once():
    agent, method = consenting(rounds=np.inf)
    call = lambda k, e=0: agent.to_call(k, said(method, k, e), np.zeros(4))  # noqa: E731
    assert call(2).scale[1] == method.planned(2).scale[1]
    for k in (2, 1, 0, -1, 1 << 24, (1 << 24) + 2):  # the last is round 2, exchange 1, of kernels
        with pytest.raises(Declined, match="a call: found"):
            call(k)
    for e in (-1, 256):
        with pytest.raises(Declined, match="found exchange"):
            call(3, e)
    with pytest.raises(Declined, match="found call 2 of one agent in round 2; allowed: 1, as dp"):
        call(2, 1)
    call(5, 1)
    with pytest.raises(Declined, match="allowed: after 1 of round 5"):
        call(5, 0)


def test_a_protocol_of_one_round_has_one():
    """Its second round costs nothing, as there is none: `planned` says a sensitivity of 0."""
    assert [consenting(np.inf, once)[0].rounds for once in (False, True)] == [(1 << 24) - 1, 1]


def test_numbers_beyond_what_rounding_hides_are_declined():
    """At the bound rounding is a thousandth of the sensitivity; a record is not seen in it."""
    reach = np.array([1.0, 0.5])
    terms = Terms(Mechanism.GAUSSIAN, View.COORDINATOR, reach, 2.0 * reach, np.full(2, np.nan))
    for agent, dim in ((0, 1), (1, 100)):
        most = largest(terms, agent, dim)
        assert np.sqrt(dim) * np.spacing(most) <= reach[agent] * 2.0**-10 * (1.0 + 1e-9)
        assert np.sqrt(dim) * np.spacing(2.0 * most) > reach[agent] * 2.0**-10
    assert largest(None, 0, 1) == FINE
    for free in (np.inf, 0.0):
        bare = Terms(Mechanism.NONE, View.COORDINATOR, np.array([free]), np.zeros(1), np.zeros(1))
        assert largest(bare, 0, 1) == np.inf
    assert not consent.beyond(np.array([np.nan]), np.inf)
    assert consent.beyond(np.array([0.0, np.nan]), 1.0)
    assert consent.beyond(np.array([-2]), 1.0)
    assert not consent.beyond(np.empty(0), 1.0)


def test_what_is_bound_to_a_job_is_no_larger_than_the_program_binds(monkeypatch):
    """tamuna's masks are 0 and 1; as a factor of what an agent keeps they must not be others."""
    local = {"solver": "noisy", "tau": 0.1}
    given = scenario("tamuna", 3, algorithm={"local": local}, problem={"clip": 1.0}, privacy={})
    assert deploy(given).status == "done"
    order = station.Station._order

    def odd(self, kind, payload, fields, arrays):
        masks = {name: 5.0 * one for name, one in arrays.items() if name.startswith("bound ")}
        return order(self, kind, payload, fields, arrays | masks)

    monkeypatch.setattr(station.Station, "_order", odd)
    with pytest.raises(RunError, match="bound q: found what is no number up to 4;"):
        deploy(given)
    monkeypatch.setattr(consent, "MORE", 5.0)  # the mutant
    assert deploy(given).status == "done"


def test_terms_of_two_machines_may_round_otherwise():
    agent, method = consenting()
    call = said(method, 1)
    call.fields["terms"][3] *= 1.0 + 1e-12
    agent.to_call(1, call, np.zeros(4))
    call = said(method, 2)
    call.fields["terms"][3] *= 1.0 + 1e-6
    with pytest.raises(Declined, match="found terms gaussian"):
        agent.to_call(2, call, np.zeros(4))


CALLED = [name for name in STAR if "network" in CASES[name]]


@pytest.mark.parametrize("name", one_each(CALLED))
def test_methods_charge_what_they_say_beforehand(name):
    asked = deployed.warm(prepare(load(CASES[name])).simulation)
    assert asked.amiss == ""
    assert asked.calls


def test_a_method_that_charges_something_else_is_not_deployed(monkeypatch, tmp_path):
    """The mutant of the test above: as a plug-in that says nothing of what it releases."""
    monkeypatch.setattr(DPADMM, "charges", lambda self, k: (None,))
    with pytest.raises(InputError, match=r"dp-admm charges gaussian of .*; allowed: none of scale"):
        deploy(PRIVATE, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    bare = {"noise_seed": "scenario"}
    assert deploy({**PRIVATE, "privacy": {**NOISE, **bare}}).status == "done"


RING = scenario(
    "zcdp-nfl", 3, network={"topology": "ring"}, problem={"clip": 1.0}, privacy=NOISE,
)  # fmt: skip


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_numbers_of_a_neighbour_are_held_to_the_same(value, monkeypatch):
    post = peer.PeerPost._post

    def odd(self, j, frame, body):
        odd = np.full(len(body) // 8, value).tobytes() if self.i == 0 else body
        post(self, j, frame, odd)

    monkeypatch.setattr(peer.PeerPost, "_post", odd)
    words = "agent 0, whom agent [13] hears no more .found what is no number up to"
    with pytest.raises(RunError, match=words):
        deploy(RING)
    if np.isnan(value):
        monkeypatch.setattr(peer, "beyond", lambda *_: False)  # the mutant: nobody notices
        assert deploy(RING).status == "done"


def test_who_carries_a_neighbours_numbers_is_held_to_the_same(monkeypatch):
    """The process that observes hands on values of letters that are shorter than these."""
    told = peer.Overseer._report

    def odd(self, agent, message):
        if message.kind == "values":
            message = message._replace(arrays={"row": np.full_like(message.arrays["row"], np.nan)})
        told(self, agent, message)

    discrete = {"kind": "discrete-gaussian", "sigma": 0.1, "resolution": 0.01}
    given = scenario(
        "q-dpsgd-1", 3, network={"topology": "complete"}, problem={"clip": 1.0},
        privacy={"noise": discrete},
    )  # fmt: skip
    assert deploy(given).status == "done"
    monkeypatch.setattr(peer.Overseer, "_report", odd)
    with pytest.raises(RunError, match=r"agent \d: a letter: found what is no number"):
        deploy(given)


def letters_of(number, values_first):
    """What an agent makes of a letter of agent 0 whose values the coordinator hands on."""
    post = object.__new__(peer.PeerPost)
    post.sources, post.values, post.came, post.round = [0], {}, {}, 1
    post.most, laid = (lambda round_: 4.0), []
    post.box = SimpleNamespace(put=lambda *about: laid.append(about[2]))
    frame = Frame(LETTER, 0, 1, 1, inside=False)
    values = Message("values", {"source": 0, "number": 1}, {"row": np.full(2, number)})
    if values_first:
        post._take_values(values)
        post._put(frame, 1.0)
    else:
        post.came[0, 1] = frame, 1.0
        post._take_values(values)
    return laid


@pytest.mark.parametrize("values_first", [False, True])
def test_who_has_handed_on_values_answers_for_them(values_first, monkeypatch):
    """Which comes first, the letter or its values, is chance: the words are the same."""
    np.testing.assert_array_equal(letters_of(4.0, values_first), [[4.0, 4.0]])
    for odd in (5.0, np.nan):
        with pytest.raises(Declined, match="a letter: found what is no number up to 4 of agent 0"):
            letters_of(odd, values_first)
    monkeypatch.setattr(peer, "Declined", Torn)  # the mutant: the neighbour is to blame
    with pytest.raises(Torn):
        letters_of(5.0, values_first)


def test_the_clock_begins_once():
    place = SimpleNamespace(origin=np.inf)
    for origin in (3.0, 9.0):
        places.Place._start(place, Message("start", {"origin": origin}, {}))
    assert place.origin == 3.0


def built(tmp_path, **changes):
    """What host alpha makes of what a coordinator says."""
    given = copy.deepcopy(PRIVATE)
    given["privacy"] |= changes.pop("privacy", {})
    prepared = prepare(load(given))
    known = SimpleNamespace(data="same", agents={"alpha": (0, 1), "beta": (2, 3)})
    return join._built({**deployed.order_of(prepared, known), **changes}, tmp_path, False)


def test_hosts_have_it_from_the_scenario_whether_states_are_private(tmp_path, monkeypatch):
    """A coordinator that says beside it that all is a test changes nothing."""
    _, asked, reserved = built(tmp_path, secret_noise=False)
    assert asked.calls == {(0, form({"name": "train", "given": 0, "bound": {}}))}
    assert reserved
    assert not built(tmp_path, privacy={"noise_seed": "scenario"})[2]


def test_hosts_say_what_the_scenario_promises(tmp_path, monkeypatch):
    saying, came = deployed.order_of, tmp_path / "came"
    monkeypatch.setattr(deployed, "order_of", lambda *_: saying(*_) | {"secret_noise": False})
    settle = station.Station.settle

    def noted(self, number):
        if (report := self.sent[number].report) is not None:
            with came.open("a") as file:
                file.write("\n".join(["a report", *report.arrays, ""]))
        settle(self, number)

    monkeypatch.setattr(station.Station, "settle", noted)
    waiting = Waiting(PRIVATE, tmp_path)
    pid, told = joining(waiting, "beta"), []
    join.take_part(waiting.address, waiting.invitation("alpha"), False, told.append)
    assert waiting.ended().endswith("done\n")
    assert os.waitpid(pid, 0)[1] == 0
    assert "private: agents keep what they do not release, and draw their noise here" in told
    assert set(came.read_text().split("\n")) == {"a report", ""}


def test_a_host_plays_no_agent_twice(tmp_path, monkeypatch):
    saying = deployed.order_of

    def odd(*given):
        return saying(*given) | {"agents": {"alpha": [0, 0], "beta": [2, 3]}}

    monkeypatch.setattr(deployed, "order_of", odd)
    waiting = Waiting(PRIVATE, tmp_path)
    with pytest.raises(Declined, match=r"agents: found \[0, 0\], one of them twice"):
        join.take_part(waiting.address, waiting.invitation("alpha"), False, lambda text: None)
    assert "alpha: agents: found [0, 0], one of them twice" in waiting.ended()
