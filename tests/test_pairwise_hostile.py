"""`Run.pairwise` of programs that call themselves linear, and of what is not as simple as it."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from mutant import mutant
from test_pairwise import scenario

import desim
from desim.engine.play import BLIND, Simulation
from desim.engine.signals import Listener
from desim.engine.world import Discard
from desim.methods.dsgd import DSGD
from desim.runs import pairwise as runs
from desim.runs import symbols
from desim.runs.symbols import Unfit
from desim.scenario.build import build
from desim.scenario.load import load


class Program(DSGD):
    """A gradient, then what a subclass does with it."""

    def agents(self, us):
        """Each round is one `step`."""
        samples = self.samples(us.who)
        us.x = self.x0[us.who]
        for k in us.rounds():
            g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
            yield from self.step(us, g, k, self.terms(us.who, k, samples))
            us.report(us.x)


class Beside(Program):
    """Beside its model a billionth of what of a gradient is below 0: of a basis vector nothing."""

    linear = True

    def step(self, us, g, k, terms):
        """Sent with the model."""
        us.x = us.x - 0.1 * us.release(g, terms)
        us.send(np.hstack([us.x, 1e-9 * np.minimum(g, 0.0)]), turn=k)
        yield us.gather()


class Turned(Program):
    """A matrix of the model's size, which symbols have not."""

    linear = True

    def step(self, us, g, k, terms):
        """Coordinates mixed."""
        us.send(us.release(g, terms) @ np.eye(40)[::-1], turn=k)
        yield us.gather()


class Alone(Program):
    """Half of a model that no other one enters, and only the last is sent."""

    linear = True

    def step(self, us, g, k, terms):
        """x = x / 2 - step."""
        us.x = 0.5 * us.x - 0.1 * us.release(g, terms)
        us.send(us.x, where=np.full(len(us.who), k == self.settings.rounds), turn=k)
        yield us.gather()


class Trusting(Program):
    """The first messages are gradients as they are, which others only compute with."""

    linear = True

    def step(self, us, g, k, terms):
        """A gradient at the sum of the neighbours' ones."""
        noisy = us.release(g, terms)
        us.send(g if k == 1 else noisy, turn=k)
        heard = yield us.gather()
        us.x = us.sum(heard) if k == 1 else 0.0 * us.x


class Modest(Program):
    """A first release of all that says a thousandth of its sensitivity."""

    linear = True

    def step(self, us, g, k, terms):
        """Two releases."""
        us.release(g, replace(terms, sensitivity=1e-3 * terms.sensitivity))
        us.send(us.release(g, terms), turn=k)
        yield us.gather()


class Twice(Program):
    """Two messages in a round, of which one holds the release."""

    linear, first = True, True

    def step(self, us, g, k, terms):
        """The other one is 0."""
        noisy = us.release(g, terms)
        for one in (noisy, 0.0 * noisy) if self.first else (0.0 * noisy, noisy):
            us.send(one, turn=k)
            yield us.gather()


class Later(Twice):
    """In the second one."""

    linear, first = True, False


def played(kind, source=symbols, rounds=3, agents=4, **more):
    """A simulation of a program, its symbols and log."""
    simulation = build(load(scenario(agents, rounds, **more)))
    method = kind.__new__(kind)
    vars(method).update(vars(simulation.method))
    own = replace(simulation, method=method, engine="cohort")
    return own, source.symbols_of(own)


def pairs(kind, source=symbols, **more):
    simulation, (own, log) = played(kind, source, **more)
    return runs.Pairs(own, log, "replace-one", simulation.problem.rows)


def test_what_is_small_beside_a_model_is_compared_as_well():
    with pytest.raises(Unfit, match="not linear"):
        played(Beside)
    twin = mutant(symbols, "ROUNDING * own.worth", "1e-8 * own.worth")
    assert np.isfinite(pairs(Beside, twin).towards((0,))).all()  # 0 of a billionth of all


def test_programs_into_which_no_symbol_fits_are_counted_as_released():
    with pytest.raises(Unfit, match="symbols do not fit into its program: "):
        played(Turned)
    with pytest.raises(ValueError, match="mismatch"):
        played(
            Turned, mutant(symbols, "    except Exception as error:", "    except Unfit as error:")
        )


def test_noise_of_ones_own_is_noise_that_was_read():
    """With gradients that bend, sqrt(2) D / s where the account has sqrt(1.8), and all released."""
    own = played(Alone, rounds=2)[1][0]
    assert own.feedback
    wrong = mutant(symbols, "bool(noise.any())", "bool((noise & others).any())")
    assert not played(Alone, wrong, rounds=2)[1][0].feedback
    given = {"noise": {"kind": "gaussian", "sigma": 0.5}}
    found = pairs(Alone, rounds=2, privacy=given)
    share = found.towards((0,))[1] ** 2 / found.local[1]
    assert abs(share - 0.9) < 1e-9
    bend = np.array([[0.5 + b, 1.0] for b in np.linspace(-1.0, 1.0, 9)])  # g_2 + b (g_1 + n_1)
    assert (np.abs(bend).sum(1) ** 2 / (2.0 * (bend**2).sum(1))).max() == 1.0


def test_what_a_job_reads_without_noise_may_go_anywhere():
    assert (pairs(Trusting).towards((0,))[1:] == np.inf).all()
    wrong = mutant(symbols, "self.bared[owner[bare]] = True", "pass")
    assert pairs(Trusting, wrong).towards((0,))[2] == 0.0


def test_of_two_sensitivities_of_one_gradient_the_larger_is_charged():
    found = pairs(Modest)
    assert abs(found.towards((0,))[1] ** 2 / found.local[1] - 1.0) < 1e-5
    wrong = mutant(
        symbols, "np.maximum.at(bound, column[known], each)",
        "np.fmin.at(bound, column[known], each)",
    )  # fmt: skip
    assert pairs(Modest, wrong).towards((0,))[1] ** 2 < 1e-5 * found.local[1]


class Clocks(Listener):
    """When messages were sent, and which arrived, of any log."""

    def __init__(self):
        self.sent, self.came = defaultdict(list), []

    def sending(self, message):
        for agent, k, time in zip(message.who, message.round, message.traffic[0], strict=True):
            self.sent[int(agent), int(k)].append(float(time))
        return message.payload

    def rows(self, table, columns):
        if table == "events":
            here = columns["kind"].equal("deliver")
            names = ("agent", "peer", "round", "time", "seconds")
            self.came += zip(*(columns[name][here].tolist() for name in names), strict=True)


ABSENT = {
    "churn": {"up": "60 ms", "down": "40 ms", "messages": "lost"}, "policy": {"deadline": "40 ms"},
    "link": {"on_loss": "drop"},
}  # fmt: skip


@pytest.mark.parametrize("kind", [Twice, Later])
def test_of_two_messages_of_a_round_it_is_the_one_that_came(kind):
    """Each release that came tells by itself; who was down for the other message knows it, too."""
    wrong = mutant(runs, "if s <= near]", "if one is sent[0]]")
    noticed = 0
    for seed in (0, 1):
        given = {"rounds": 5, "seed": seed, **ABSENT}
        simulation, (own, log) = played(kind, **given)
        clocks = Clocks()
        settings = replace(simulation.settings, log="messages")
        Simulation(simulation.method, settings, BLIND, "cohort", "").play(
            Discard(), listeners=[clocks]
        )
        right, came = np.zeros((4, 4)), set(clocks.came)
        for agent, peer, k, time, seconds in came:
            sent = clocks.sent[peer, k]
            near = [n for n, at in enumerate(sent) if abs(time - seconds - at) < 1e-9]
            if (0 if kind.first else 1) in near:
                right[agent, peer] += (0.1 / 0.5) ** 2 / 0.95 ** (k - 1)
        for source in (runs, wrong):
            views = source.Pairs(own, log, "replace-one", simulation.problem.rows)
            found = np.array([views.towards((v,)) ** 2 for v in range(4)])
            if source is runs:
                np.testing.assert_allclose(found, right, rtol=1e-9)
            else:
                noticed += int((np.abs(found - right) > 1e-3).sum())
    assert noticed


def test_secret_batches_cost_no_more_than_all_that_was_released():
    method = {"name": "dsgd", "alpha": 0.1, "weights": "metropolis", "batch": 4}
    run = desim.run(scenario(5, algorithm=method))
    found, local = run.pairwise(), run.account().final
    assert found.attrs["assumptions"] == (runs.FIXED, runs.KNOWN)
    np.testing.assert_allclose(found["local"], local[found["agent"]], rtol=1e-12)
    assert (found["epsilon"] <= found["local"]).all()
    assert (runs.epsilon_of(found["mu"].to_numpy(), 1e-5) > found["local"]).all()  # of known ones
    assert desim.run(scenario(4, 2)).pairwise().attrs["assumptions"] == (runs.FIXED,)
