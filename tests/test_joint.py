"""Several runs together: shared noise, what adds up, and what is known of the data."""

import json

import numpy as np
import pandas as pd
import pytest
from cases import CASES, graph, merged
from dp_accounting.pld import privacy_loss_distribution as loss
from mutant import mutant
from scipy import optimize, stats

import desim
from desim.columns import pieces_of, rows_of
from desim.errors import InputError
from desim.experiments.studies.words import _noise_shared
from desim.interface.cli import main
from desim.privacy.accounting.risk import risk
from desim.privacy.accounting.views import SCHEDULED
from desim.runs import joint, likeness
from desim.runs.likeness import ALIKE

SMALL = graph(
    problem={
        "agents": 4,
        "clip": 1.0,
        "data": {"source": "synthetic", "kind": "classification", "rows": 6, "dim": 3},
        "loss": "logistic",
    },
    algorithm={"name": "dsgd", "alpha": 0.1},
    network={"topology": "complete"},
    privacy={"noise": {"sigma": 2.0}},
    observe={"metrics": [], "iterates": True},
    stop={"rounds": 3},
    engine="cohort",
)


@pytest.fixture(scope="module")
def play(tmp_path_factory):
    """play(**changes): the run of SMALL with these changes, stored once."""
    folder, known = tmp_path_factory.mktemp("runs"), {}

    def play(**changes):
        key = json.dumps(changes, sort_keys=True)
        if key not in known:
            made = merged(SMALL, changes)
            known[key] = desim.run(made, out=folder / f"run{len(known)}")
        return known[key]

    return play


@pytest.fixture(scope="module")
def arrays(tmp_path_factory):
    """arrays(seed): data of a file, the same rows for the same seed."""
    folder = tmp_path_factory.mktemp("data")

    def arrays(seed):
        rng = np.random.default_rng(seed)
        file = folder / f"rows{seed}.npz"
        A, b = rng.standard_normal((4, 6, 3)), np.sign(rng.standard_normal((4, 6)))
        np.savez(file, A=A, b=b)
        return {"data": {"source": "npz", "file": str(file)}}

    return arrays


ROUGH = "final, method = np.array([s.bound(delta)[0] for s in sums]), 'PLD'"


def noise(sigma):
    return {"noise": {"sigma": sigma}}


def composed(ratios, delta=1e-5):
    """Epsilon of Gaussian releases, from Balle and Wang's formula and a root, on its own."""
    mu = float(np.sqrt(np.sum(np.square(ratios))))
    normal = stats.norm

    def excess(e):
        log = normal.logcdf(-e / mu - mu / 2)
        return normal.cdf(mu / 2 - e / mu) - np.exp(e + log) - delta

    return optimize.brentq(excess, 0.0, 500.0, xtol=1e-12)


def ratios(run, agent=0):
    rows = run.releases[run.releases["agent"] == agent]
    return (rows["sensitivity"] / rows["scale"]).to_numpy()


def seen(runs, module=joint, **terms):
    return {one.view: one for one in module.joint(runs, **terms)}["eavesdropper"]


def test_two_runs_of_one_seed_reveal_the_gradient(play):
    """x1 = mean of x0 - alpha (g + sigma noise): the same noise at two scales is solved for."""
    bare, low, high = (play(privacy=noise(one)) for one in (0.0, 0.25, 0.5))
    first = {one: run.iterates[1] for one, run in ((0.0, bare), (0.25, low), (0.5, high))}
    found = (0.5 * first[0.25] - 0.25 * first[0.5]) / (0.5 - 0.25)
    np.testing.assert_allclose(found, first[0.0], rtol=1e-8, atol=1e-12)
    other = play(privacy=noise(0.25), seed=6)
    wrong = (0.5 * other.iterates[1] - 0.25 * first[0.5]) / (0.5 - 0.25)
    assert np.abs(wrong - first[0.0]).max() > 1e-2


def test_runs_that_share_noise_have_no_privacy_together(play):
    low, high = play(privacy=noise(0.25)), play(privacy=noise(0.5))
    for one in (low, high):
        assert seen([one]).epsilon == pytest.approx(composed(ratios(one)), rel=1e-9)

    def check(module):
        found = seen([low, high], module)
        assert np.isinf(found.epsilon)
        assert found.risk.advantage == 1.0
        assert any(flag.startswith("infinite:") and "one seed" in flag for flag in found.flags)

    check(joint)
    with pytest.raises(AssertionError):
        check(mutant(joint, "if mine & others or", "if mine - others or"))


def test_data_that_are_the_same_add_up(play, arrays):
    problem = arrays(0)
    runs = [play(problem=problem, seed=seed, privacy=noise(2.0 * seed)) for seed in (1, 2, 3)]

    def check(module):
        expected = composed(np.concatenate([ratios(run) for run in runs]))
        found = seen(runs, module)
        assert found.epsilon == pytest.approx(expected, rel=1e-9)
        assert (found.method, found.risk.exact) == ("exact GDP", True)
        looser = seen(runs, module, delta=1e-3)
        assert looser.epsilon == pytest.approx(
            composed(np.concatenate([ratios(run) for run in runs]), 1e-3), rel=1e-9
        )

    check(joint)
    right = "part = other.agents.get(agent, NOTHING)"
    with pytest.raises(AssertionError):
        check(mutant(joint, right, f"{right} if k == place else NOTHING"))


def test_runs_with_laplace_noise_add_up_by_loss_distributions(play, arrays):
    law = {"problem": arrays(0), "stop": {"rounds": 40}}
    runs = [
        play(**law, seed=seed, privacy={"noise": {"kind": "laplace", "sigma": 8.0 * seed}})
        for seed in (1, 2)
    ]
    ours, told = seen(runs[:1]), runs[0].account()
    assert (ours.epsilon, ours.method) == (told.worst, told.method) == (told.worst, "PLD")
    assert (ours.agent, ours.risk) == (int(told.final.argmax()), risk(told))
    assert SCHEDULED in ours.assumptions

    def cost(agent):
        whole = loss.identity(1e-3)
        for run in runs:
            for ratio, n in zip(*np.unique(ratios(run, agent), return_counts=True), strict=True):
                fine = {"value_discretization_interval": 1e-3}
                one = loss.from_laplace_mechanism(1.0 / ratio, **fine)
                whole = whole.compose(one.self_compose(int(n)))
        return whole.get_epsilon_for_delta(1e-5)

    expected = max(cost(agent) for agent in range(4))

    def check(module):
        found = seen(runs, module)
        assert found.epsilon == pytest.approx(expected, rel=1e-3)
        assert (found.method, found.risk.exact) == ("PLD", False)

    check(joint)
    with pytest.raises(AssertionError):
        check(mutant(joint, "final, method = spent(sums, delta)", ROUGH))


def test_the_same_run_twice_is_one(play, tmp_path):
    run = play()
    again = desim.run(merged(SMALL, {"log": "messages", "name": "again"}), out=tmp_path / "again")
    found = seen([run, again, run])
    assert found.epsilon == seen([run]).epsilon == pytest.approx(composed(ratios(run)), rel=1e-9)
    assert sum("both are one" in flag for flag in found.flags) == 2
    shorter = play(stop={"rounds": 2})
    assert seen([run, shorter]).epsilon == found.epsilon  # it is the other's beginning


def test_a_run_under_another_network_is_the_same_release(play):
    run = play()
    retimed = desim.retime(run, network={"link": {"latency": "2 s"}})
    assert retimed.manifest["time"] > run.manifest["time"]
    found = seen([run, retimed])
    assert found.epsilon == seen([run]).epsilon
    assert any("both are one" in flag for flag in found.flags)


SLOW = {"topology": "complete", "link": {"latency": "1 s"}}
DELAYED = {"network": SLOW, "compute": {"speed": {"uniform": [1, 9]}}}


def test_a_run_played_anew_under_another_network_is_one_where_delays_change_no_value(play):
    run, far = play(), play(**DELAYED)
    found = seen([run, far])
    assert found.epsilon == seen([run]).epsilon == pytest.approx(composed(ratios(run)), rel=1e-9)
    assert any("both are one" in flag for flag in found.flags)

    def check(module, one, other):  # the same values, or another graph, or waits that end by time
        assert module.same_values(run, far)
        assert not module.same_values(one, other)

    graphs = run, play(network={**SLOW, "topology": "ring"})
    limits = [play(**part, policy={"deadline": "3 s"}) for part in ({}, DELAYED)]
    for pair, right in (
        (graphs, "if one.scenario.network.topology != other.scenario.network.topology:"),
        (limits, "if any(plugged(run)[0] or delayed(run.scenario) for run in (one, other)):"),
    ):
        check(likeness, *pair)
        assert np.isinf(seen(pair).epsilon)
        blind = mutant(likeness, right, "if False:")
        blind._rows = blind._same_models = lambda *found: True
        with pytest.raises(AssertionError):
            check(blind, *pair)


def test_two_beginnings_of_one_training_are_added_up_at_most(play):
    """Cut where one agent of each run is behind: neither holds all that the other has released."""
    run, far = (desim.open(play(**part).directory) for part in ({}, DELAYED))
    for one, behind in ((run, 0), (far, 1)):
        table = one.store.table("releases", None)
        left = table[(table["agent"] != behind) | (table["round"] < 3)]
        one.store = Left(one.store, left.index.to_numpy())
    found = seen([run, far])
    assert seen([run]).epsilon <= found.epsilon < np.inf
    assert any("one training, of which each shows a part" in flag for flag in found.flags)
    assert found.method == "GDP, an upper bound"
    infinite = mutant(joint, "or same_values(one.run, other.run)", "")
    assert np.isinf(seen([run, far], infinite).epsilon)


class Left:
    """What a run has stored, of its releases some rows only."""

    unchecked = ""

    def __init__(self, store, rows):
        self.store, self.rows = store, rows

    def table(self, name, columns):
        return self.store.table(name, columns).loc[self.rows]

    def pieces(self, name, columns):
        return pieces_of(rows_of(self.store.columns(name, columns), self.rows))

    def arrays(self, name):
        return self.store.arrays(name)


def test_a_run_that_was_killed_is_part_of_the_whole(play):
    run, cut = play(), desim.open(play().directory)
    rows = cut.store.as_it_is()

    class Short:
        unchecked = ""

        def table(self, name, columns):
            return rows.table(name, columns).iloc[:5]

        def pieces(self, name, columns):
            return pieces_of(rows_of(rows.columns(name, columns), slice(0, 5)))

    cut.store = Short()
    for both in ([run, cut], [cut, run]):
        assert seen(both).epsilon == seen([run]).epsilon
    assert seen([cut]).epsilon < seen([run]).epsilon


def test_studies_say_that_cases_share_their_noise():
    frame = pd.DataFrame({"case": [0, 0, 1], "seed": [1, 2, 1], "epsilon": [1.0, 1.0, 2.0]})
    assert _noise_shared(frame)
    assert not _noise_shared(frame.assign(epsilon=[1.0, 1.0, np.nan]))
    assert not _noise_shared(frame.assign(epsilon=[np.inf, 1.0, 2.0]))
    assert not _noise_shared(frame.assign(seed=[1, 2, 3]))
    assert not _noise_shared(frame.drop(columns="epsilon"))


def test_a_release_of_other_bits_is_not_the_same_run(play):
    run = play()

    def check(module):
        assert module.same_run(run, run)
        other = desim.open(run.directory)
        table = other.store.table("releases")

        class Changed:
            def table(self, name, columns):
                return table.assign(scale=table["scale"] * (1.0 + 1e-15))[columns]

            def arrays(self, name):
                return run.store.arrays(name)

        other.store = Changed()
        assert not module.same_run(run, other)

    check(likeness)
    with pytest.raises(AssertionError):
        check(mutant(likeness, "if _rows(mine) != _rows(others):", "if False:"))


def test_data_of_which_nothing_is_known_add_up_the_dearest(play, arrays):
    one = play(problem=arrays(0), seed=1)
    other = play(problem={**arrays(1), "clip": 2.0}, seed=2)
    found = seen([one, other])
    most = [max(np.sum(ratios(run, i) ** 2) for i in range(4)) for run in (one, other)]
    assert found.epsilon == pytest.approx(composed(np.sqrt(most)), rel=1e-9)
    assert found.method == "GDP, an upper bound"
    assert not found.risk.exact
    assert any("nobody can tell whether a record is in both" in flag for flag in found.flags)


def test_an_agents_records_may_be_with_all_agents_of_another_run(play, arrays):
    one, other = play(problem=arrays(0), seed=1), play(problem=arrays(1), seed=2)

    def check(module):
        found = seen([one, other], module, relation="agent")
        own = max(np.sum((6.0 * ratios(one, i)) ** 2) for i in range(4))
        every = sum(np.sum((6.0 * ratios(other, i)) ** 2) for i in range(4))
        assert found.epsilon == pytest.approx(composed(np.sqrt([own, every])), rel=1e-9)

    check(joint)
    right = 'reduce(Tally.plus, every, NOTHING) if relation == "agent" else dearest(every)'
    with pytest.raises(AssertionError):
        check(mutant(joint, right, "dearest(every)"))


def test_rows_generated_from_other_seeds_are_in_one_run_only(play):
    one, other = play(seed=1), play(seed=2, privacy=noise(1.0))
    found = seen([one, other])
    assert found.epsilon == max(seen([run]).epsilon for run in (one, other))
    assert any("no record is in both" in flag for flag in found.flags)


def test_noise_that_is_shared_is_lost_to_others_too(play, arrays):
    """Who may be in a run that has lost its privacy has lost it as well."""
    low, high = (play(problem=arrays(0), seed=1, privacy=noise(one)) for one in (1.0, 2.0))
    far = play(problem={**arrays(1)}, seed=3)
    for agents in (joint._block("far", far, [("far", far)], 1e-5, "eavesdropper", "replace-one"),):
        assert agents.agents.keys() == {0, 1, 2, 3}
    assert np.isinf(seen([low, high, far]).epsilon)


def test_terms_must_be_shared(play, arrays):
    one = play(problem=arrays(0), seed=1)
    other = play(problem=arrays(0), seed=2, privacy={"delta": 1e-6, **noise(2.0)})
    with pytest.raises(InputError, match="delta: the runs state 1e-05 and 1e-06"):
        joint.joint([one, other])
    assert joint.joint([one, other], delta=1e-5, view="neighbour:1")[0].view == "neighbour:1"
    with pytest.raises(InputError, match="no coordinator"):
        joint.joint([one, other], delta=1e-5, view="coordinator")
    with pytest.raises(InputError, match="delta"):
        joint.joint([one, other], delta=2.0)


def test_compare_and_reports_say_that_noise_is_shared(play, arrays, tmp_path):
    low, high = play(privacy=noise(0.25)), play(privacy=noise(0.5))
    assert ALIKE in desim.compare([low, high]).notes
    apart = [play(problem=arrays(0), seed=seed) for seed in (1, 2)]
    assert ALIKE not in desim.compare(apart).notes
    page = desim.report([low, high], out=tmp_path / "page.html")
    assert "runs of one seed share their noise" in page.read_text("utf-8")
    assert "advantage" in page.read_text("utf-8")


def test_the_command_tells_of_all_runs(play, arrays, capsys):
    runs = [play(problem=arrays(0), seed=seed, privacy=noise(2.0 * seed)) for seed in (1, 2, 3)]

    def call(*words):
        with pytest.raises(SystemExit) as end:
            main(["privacy", *map(str, words)])
        return end.value.code, *capsys.readouterr()

    folders = [run.directory for run in runs]
    code, out, err = call(*folders)
    assert (code, err) == (0, "")
    first = out.splitlines()[0]
    spent = seen(runs)
    assert first.startswith(f"3 runs together: epsilon {spent.epsilon:.4g}, advantage ")
    assert first.endswith("(view eavesdropper, replace-one, delta 1e-05, exact GDP)")
    told = json.loads(call(*folders, "--json")[1])
    assert told["views"][0]["epsilon"] == spent.epsilon
    assert told["views"][0]["advantage"] == spent.risk.advantage
    code, _, err = call(*folders, "--accountant", "own")
    assert code == 2
    assert "allowed: with one" in err


def test_runs_whose_noise_is_shared_out_over_other_rounds_are_told_to_share_it():
    """Noise of classical composition follows from stop.rounds: two ends are two scales."""
    few, more = (desim.run(merged(CASES["dp-nfl"], {"stop": {"rounds": n}})) for n in (4, 6))
    assert few.releases["scale"].iloc[0] != more.releases["scale"].iloc[0]
    assert likeness.sharing([[few], [more]]) == ALIKE
    wrong = mutant(likeness, "if shared_out else", "if False else")
    assert wrong.sharing([[few], [more]]) == ""
    same = [desim.run(merged(CASES["nfl"], {"stop": {"rounds": n}})) for n in (4, 6)]
    assert likeness.sharing([[same[0]], [same[1]]]) == ""
