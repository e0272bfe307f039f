"""Torch modules as models: gradients are those of torch, clipped ones those of a loop."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import desim
from desim.errors import InputError
from desim.log.parquet import Tables
from desim.numerics.jit import one_thread
from desim.problem.kernels.gradients import batch_gradient, gradient
from desim.runs.likeness import same_run
from desim.runs.replay import resume
from desim.scenario.build import build
from desim.scenario.load import load

torch = pytest.importorskip("torch", reason="torch is not installed")
from torch import nn  # noqa: E402

from desim.problem.models.torch_module import Copies  # noqa: E402
from desim.problem.models.torch_parts import (  # noqa: E402
    filled_up,
    fixed_sha256,
    lengths,
    weighted,
)

PLUGIN = Path(__file__).parent / "plugins" / "networks.py"
LOCAL = {"solver": "sgd", "batch": 8, "epochs": 2, "step": 0.1}
SPOKEN = {"link": {"latency": {"uniform": ["5 ms", "40 ms"]}}}
RING = {"topology": "ring", **SPOKEN}
FAST = {"speed": {"uniform": [100, 900]}}
NOISE = {"noise": {"sigma": 0.1}}
DIGITS = {"source": "sklearn", "name": "digits", "scale": "max", "test": "20 %", "train": 120}


def scenario(model="layers", **more):
    """Six agents with some of the digits each."""
    problem = {
        "agents": 6, "model": model, "partition": {"dirichlet": 0.6}, "data": DIGITS,
    }  # fmt: skip
    tree = {
        "name": "digits", "seed": 5, "plugins": [str(PLUGIN)],
        "problem": problem | more.pop("problem", {}),
        "algorithm": {"name": "fedavg", "local": LOCAL}, "network": SPOKEN, "compute": FAST,
        "observe": {"metrics": ["loss", "accuracy"]}, "stop": {"rounds": 3},
    }  # fmt: skip
    return tree | more


@cache
def problem_of(model="layers", clip=None):
    """One problem for all that only ask it: to look at a module takes a second."""
    more = {} if clip is None else {"clip": clip}
    return build(load(scenario(model, problem=more))).settings.problem


def module_at(problem, x):
    """The model's module with parameters x."""
    net = problem.loss.model.module()
    with torch.no_grad():
        torch.nn.utils.vector_to_parameters(
            torch.from_numpy(x.astype(np.float32)), net.parameters()
        )
    return net


def losses_of(problem, i, x, rows=None):
    """Cross-entropies of agent i's rows at x by torch alone, and the module."""
    net, (low, high) = module_at(problem, x), problem.spans()[i]
    place = np.arange(low, high) if rows is None else low + rows
    inputs, labels = torch.from_numpy(problem.A[place]), torch.from_numpy(problem.b[place])
    return nn.functional.cross_entropy(net(inputs), labels, reduction="none"), net


def flat(grads):
    return torch.cat([one.reshape(-1) for one in grads]).numpy()


def looped(problem, i, x):
    """The gradients (rows, dim) of agent i's rows, each computed alone."""
    net, (low, high) = module_at(problem, x), problem.spans()[i]
    found = []
    for place in range(low, high):
        scores = net(torch.from_numpy(problem.A[place : place + 1]))
        loss = nn.functional.cross_entropy(scores, torch.from_numpy(problem.b[place : place + 1]))
        found.append(flat(torch.autograd.grad(loss, net.parameters())).astype(float))
    return np.array(found)


def clipped_mean(gradients, clip):
    """The mean of gradients (rows, dim), each cut to the clip."""
    lengths = np.linalg.norm(gradients, axis=1, keepdims=True)
    return (gradients * np.minimum(1.0, clip / lengths)).mean(axis=0)


@pytest.fixture
def alone():
    """One thread of desim and of torch: in oracles that go row by row several only wait."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with one_thread():
        yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("model", ["layers", "convolution", "branching", "tied", "frozen"])
def test_gradients_are_those_of_torch(model):
    problem = problem_of(model)
    x = problem.loss.start + 0.1 * np.random.default_rng(1).normal(size=problem.dim)
    who = np.arange(problem.agents)
    found = gradient(who, np.tile(x, (len(who), 1)), problem.data)
    values = problem.agent_values(x)
    for i in who:
        losses, net = losses_of(problem, i, x)
        if model == "frozen":
            net.eval()
        g = flat(torch.autograd.grad(losses.mean(), net.parameters()))
        if model != "frozen":  # whose own module trains its averages
            assert np.abs(found[i] - g).max() <= 1e-6 * (1.0 + np.abs(g).max())
            assert values[i] == pytest.approx(float(losses.detach().mean()), rel=1e-5)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("model", ["layers", "convolution", "branching"])
@pytest.mark.slow
def test_clipped_gradients_are_those_of_a_loop(model):
    problem = problem_of(model, 0.7)
    x, who = problem.loss.start, np.arange(problem.agents)
    found = gradient(who, np.tile(x, (len(who), 1)), problem.data)
    alone = [looped(problem, i, x) for i in who]
    loop = np.array([clipped_mean(one, 0.7) for one in alone])
    assert np.abs(found - loop).max() <= 1e-5
    wrong = np.array([clipped_mean(one, 0.8) for one in alone])  # the wrong twin
    assert np.abs(found - wrong).max() > 1e-3


def test_weighted_sums_of_parts_do_not_depend_on_how_many_go_together():
    torch.manual_seed(0)
    parts = tuple(torch.randn(6, 32, width, dtype=torch.float64) for width in (13, 130, 2000, 1))
    factors = torch.rand(6, 32, dtype=torch.float64)
    found = weighted(factors, parts)
    exact = np.einsum("nm,nmd->nd", factors.numpy(), torch.cat(parts, -1).numpy())
    assert np.allclose(found.numpy(), exact, rtol=0.0, atol=1e-12)
    unweighted = weighted(torch.ones_like(factors), parts)  # the wrong twin
    assert not np.allclose(unweighted.numpy(), exact, rtol=0.0, atol=1e-2)
    narrow, singles = parts[:2], factors.float()
    each = tuple(one.float() for one in narrow)
    alone = [weighted(singles[i].clone(), tuple(one[i].clone() for one in each)) for i in range(6)]
    assert torch.equal(weighted(singles, each), torch.stack(alone))
    norms = lengths(parts)
    assert np.allclose(norms, np.linalg.norm(torch.cat(parts, -1), axis=-1), rtol=1e-12)


def test_batches_are_the_rows_that_desim_draws_for_its_own_models():
    """The batch of an address is the same for every kind of model: that of softmax here."""
    from desim.numerics.keys import Stream, subset

    problem = problem_of("layers")
    x, who = problem.loss.start, np.arange(problem.agents)
    found = batch_gradient(who, np.tile(x, (len(who), 1)), 4, 7, 5, problem.data, step=2)
    for i in who:
        rows = subset(5, Stream.BATCH, int(problem.rows[i]), 4, agent=i, round=7, step=2)
        losses, net = losses_of(problem, i, x, rows)
        g = flat(torch.autograd.grad(losses.mean(), net.parameters()))
        assert np.abs(found[i] - g).max() <= 1e-6 * (1.0 + np.abs(g).max())


@pytest.mark.parametrize("model", ["layers", "convolution", "dropping", "branching"])
@pytest.mark.parametrize("clip", [None, 1.0])
def test_who_is_computed_together_changes_no_bit(model, clip):
    problem = problem_of(model, clip)
    rng = np.random.default_rng(3)
    who, x = np.arange(6), problem.loss.start + 0.1 * rng.normal(size=(6, problem.dim))
    both = [
        batch_gradient(some, x[some], 8, 1, 5, problem.data)
        for some in (who, who[::-1].copy(), who[2:3], who[3:])
    ]
    whole = both[0]
    assert np.array_equal(both[1], whole[::-1])
    assert np.array_equal(both[2], whole[2:3])
    assert np.array_equal(both[3], whole[3:])
    later = batch_gradient(who, x, 8, 2, 5, problem.data)
    assert not np.array_equal(later, whole)


@pytest.mark.parametrize("cut", [False, True])
def test_agents_go_together_whatever_the_number_of_their_rows(cut):
    """Where bits would depend on the group they are computed one by one, which is slow."""
    model = problem_of("layers", 1.0).loss.model
    with model.computing():
        for rows in (1, 7, 8, 10, 31, 32):
            assert model._together_with(rows, cut) in (rows, -(-rows // 4) * 4)


def sums_filled_up(problem, m, clip, counted):
    """Sums over m rows of six agents that go together with rows again to fill up, and a loop's."""
    model, place = problem.loss.model, np.arange(6)[:, None] * 10 + np.arange(m)
    x = problem.loss.start + 0.1 * np.random.default_rng(2).normal(size=(6, problem.dim))
    given = [model._tensor(one) for one in (x, problem.A[place], problem.b[place])]
    filled = (given[0], *(filled_up(one, 12) for one in given[1:]))
    found = model._all(*filled, counted, clip).numpy()
    alone = [model._alone(*(one[i] for one in given), clip).numpy() for i in range(6)]
    return found, np.array(alone)


@pytest.mark.parametrize("m", [1, 9, 10, 12])
@pytest.mark.parametrize("clip", [np.inf, 0.5])
def test_rows_that_fill_up_count_for_nothing(m, clip):
    problem = problem_of("layers", 1.0)
    found, alone = sums_filled_up(problem, m, clip, m)
    assert np.abs(found - alone).max() <= 1e-5
    wrong, _ = sums_filled_up(problem, m, clip, 12)  # the wrong twin, but where there are none
    assert (np.abs(wrong - alone).max() > 1e-3) == (m < 12)


class Meeting(nn.Module):
    """Takes the mean of the rows away while it trains."""

    def forward(self, x):
        return x - x.mean(0) if self.training else x


def test_rows_that_meet_in_training_are_not_filled_up():
    model = problem_of.__wrapped__().loss.model  # its own: it is changed
    net = nn.Sequential(Meeting(), model.copies.module)
    model.copies = Copies(net, [f"1.{name}" for name in model.names], False)
    model.names = model.copies.names
    with model.computing():
        assert model._tried(10, 12, False) is False


METHODS = [
    ({"name": "fedavg", "local": LOCAL}, {}),
    ({"name": "fedavg", "local": LOCAL}, {"policy": {"deadline": "1 s"}}),
    ({"name": "fedavg", "local": LOCAL}, {"policy": {"quorum": 3}}),
    ({"name": "fedavg", "local": LOCAL}, {"policy": {"buffer": 2}}),
    ({"name": "fedavg", "local": LOCAL}, {"policy": "each"}),
    ({"name": "scaffold", "local": LOCAL}, {}),
    ({"name": "fed-plt", "rho": 1.0, "local": LOCAL}, {}),
    ({"name": "fedlin", "local": LOCAL}, {}),
    ({"name": "fed-pd", "eta": 1.0, "local": LOCAL}, {}),
    ({"name": "led", "beta": 0.1, "local": LOCAL}, {}),
    ({"name": "tamuna", "p": 0.5, "chi": 0.5, "local": {"solver": "gradient", "step": 0.1}}, {}),
    ({"name": "dp-admm", "rho": 1.0, "eta": 1.0}, {"privacy": NOISE}),
    ({"name": "dsgd", "alpha": 0.1, "batch": 8}, {"network": RING, "privacy": NOISE}),
    ({"name": "sdm-dsgd", "alpha": 0.1, "batch": 8, "theta": 0.5, "c": 0.5}, {"network": RING}),
    ({"name": "q-dpsgd-1", "alpha": 0.1, "mixing": 0.5, "bits": 8, "resolution": 0.01,
      "deadline": "100 ms"}, {"network": RING}),
    ({"name": "q-dpsgd-2", "alpha": 0.1, "mixing": 0.5, "bits": 8, "resolution": 0.01,
      "deadline": "100 ms"}, {"network": RING}),
    ({"name": "zcdp-subgradient", "step": 0.1}, {"network": RING, "privacy": NOISE}),
    ({"name": "zcdp-nfl", "rho": 1.0, "eta": 0.1}, {"network": RING, "privacy": NOISE}),
]  # fmt: skip


@pytest.fixture(scope="module")
def problems():
    """The problems of the methods below, without noise and with it: a look at a module is long."""
    return {}


@pytest.mark.parametrize(("algorithm", "more"), METHODS)
def test_engines_agree_to_the_bit(problems, algorithm, more):
    private = "privacy" in more
    few = {"clip": 1.0} if private else {}
    tree, played = scenario(algorithm=algorithm, problem=few, **more), []
    for engine in ("cohort", "agents"):
        simulation, tables = (
            build(load({**tree, "engine": engine}), problems.get(private)),
            Tables(),
        )
        assert simulation.settings.problem is problems.setdefault(private, simulation.problem)
        simulation.play(tables)
        played.append([tables.read(name) for name in ("events", "metrics", "releases")])
    for one, two in zip(*played, strict=True):
        assert one.equals(two)
        assert len(one) > 0


def test_a_method_whose_gradients_are_others_is_found_out():
    """The wrong twin of the test above: a step more changes what is stored."""
    one = desim.run(scenario())
    two = desim.run(scenario(algorithm={"name": "fedavg", "local": {**LOCAL, "epochs": 3}}))
    assert not one.metrics.equals(two.metrics)


@pytest.mark.usefixtures("alone")
@pytest.mark.slow
def test_fedavg_is_torch_s_own_loop():
    """Full gradient steps with torch.optim.SGD on a module for each agent, averaged."""
    local = {"solver": "gradient", "epochs": 3, "step": 0.2}
    run = desim.run(scenario("convolution", algorithm={"name": "fedavg", "local": local}))
    problem = problem_of("convolution")
    x = problem.loss.start
    for _ in range(3):
        ends = []
        for low, high in problem.spans():
            net = module_at(problem, x)
            optimiser = torch.optim.SGD(net.parameters(), lr=0.2)
            for _ in range(3):
                optimiser.zero_grad()
                inputs, labels = problem.A[low:high], problem.b[low:high]
                scores = net(torch.from_numpy(inputs))
                nn.functional.cross_entropy(scores, torch.from_numpy(labels)).backward()
                optimiser.step()
            ends.append(torch.nn.utils.parameters_to_vector(net.parameters()).detach().numpy())
        x = np.mean(ends, axis=0, dtype=float)
    assert np.abs(run.model[-1] - x).max() < 2e-5
    assert np.abs(run.model[-2] - x).max() > 1e-3


def test_a_regression_learns():
    data = {"source": "synthetic", "kind": "regression", "rows": 20, "dim": 4}
    problem = {"agents": 4, "data": data, "model": "regression"}
    tree = scenario(observe={"metrics": ["loss"]}, stop={"rounds": 20})
    run = desim.run({**tree, "problem": problem})
    told = run.metrics["value"].to_numpy()
    assert told[-1] < 0.1 * told[0]


def test_a_run_that_was_cut_off_goes_on_with_the_same_bits(tmp_path):
    tree = scenario("dropping", stop={"rounds": 6})
    whole = desim.run(tree, tmp_path / "whole")
    desim.run({**tree, "stop": {"rounds": 3}}, tmp_path / "part")
    gone_on = resume(tmp_path / "part", {"stop.rounds": 6})
    for name in ("events", "metrics", "releases"):
        assert getattr(whole, name).equals(getattr(gone_on, name))
    assert whole.manifest["model"]["libraries"] == {"torch": torch.__version__}
    text = (tmp_path / "part" / "manifest.json").read_text()
    (tmp_path / "part" / "manifest.json").write_text(text.replace(torch.__version__, "1.0"))
    with pytest.raises(InputError, match=r"model: libraries: found .*'2\..*'1\.0'"):
        resume(tmp_path / "part", {"stop.rounds": 7})


def test_a_run_s_model_comes_back_into_a_module(tmp_path):
    from desim.torch import load as load_into

    run = desim.run(scenario("convolution", observe={"metrics": ["accuracy"], "iterates": True}))
    problem = problem_of("convolution")
    net = load_into(run, problem.loss.model.module())
    with torch.no_grad():
        said = net(torch.from_numpy(problem.test_A)).argmax(1).numpy()
    told = run.metrics[run.metrics.agent == -1]["value"].to_numpy()[-1]
    assert float(np.mean(said == problem.test_b)) == pytest.approx(told)
    own = load_into(run, problem.loss.model.module(), agent=2)
    x = torch.nn.utils.parameters_to_vector(own.parameters()).detach().numpy()
    assert np.array_equal(x, run.iterates[-1, 2].astype(np.float32))
    with pytest.raises(InputError, match="parameters that train"):
        load_into(run, nn.Linear(3, 2))


def test_what_no_training_changes_must_be_the_run_s(tmp_path):
    from desim.torch import load as load_into

    run = desim.run(scenario("frozen", observe={"metrics": ["loss"]}))
    model = problem_of("frozen").loss.model
    assert load_into(run, model.copies.module) is model.copies.module
    assert load_into(run, model.module().double()) is not None
    plain = desim.run(scenario(observe={"metrics": ["loss"]}))
    with pytest.raises(InputError, match="do not train are not those of the run"):
        load_into(
            plain, nn.Sequential(problem_of("layers").loss.model.module(), nn.BatchNorm1d(10))
        )
    other = model.module()
    other[0].running_mean += 0.5
    with pytest.raises(InputError, match="do not train are not those of the run"):
        load_into(run, other)


def test_a_model_that_gives_other_numbers_is_not_gone_on_with(tmp_path):
    """Its file may be as it was: what it imports or reads may not be."""
    other = tmp_path / "weights.npy"
    np.save(other, np.eye(64, dtype="float32"))
    text = PLUGIN.read_text("utf-8") + READING.format(file=str(other))
    (tmp_path / "own.py").write_text(text, "utf-8")
    tree = scenario("reading", plugins=[str(tmp_path / "own.py")])
    desim.run(tree, tmp_path / "run")
    same = desim.run(tree, tmp_path / "same")
    assert resume(tmp_path / "run", {"stop.rounds": 4}).status == "done"
    np.save(other, 2.0 * np.eye(64, dtype="float32"))
    with pytest.raises(InputError, match=r"model: the hash of the numbers that no .*as in the run"):
        resume(tmp_path / "run", {"stop.rounds": 5})
    doubled = desim.run(tree, tmp_path / "doubled")
    with pytest.raises(InputError, match="model: the hash of the numbers"):
        desim.retime(same, network={"link": {"latency": "5 ms"}})
    assert same_run(same, desim.open(tmp_path / "same"))
    assert not same_run(same, doubled)
    notes = desim.compare([tmp_path / "same", tmp_path / "doubled"]).notes
    assert notes[0].startswith("warning: not the same data or loss")


def test_runs_that_differ_in_a_model_s_clip_have_one_problem(tmp_path):
    for clip in (0.5, 1.0):
        desim.run(scenario(problem={"clip": clip}), tmp_path / f"{clip}")
    assert desim.compare([tmp_path / "0.5", tmp_path / "1.0"]).notes[0].startswith("differ in")


def test_a_complex_buffer_that_is_conjugated_has_a_hash():
    module = nn.Linear(2, 2)
    module.register_buffer("turned", torch.ones(3, dtype=torch.complex64).conj())
    found = [fixed_sha256(module, torch.float32) for _ in range(2)]
    module.turned = 2.0 * module.turned
    assert found[0] == found[1] != fixed_sha256(module, torch.float32)


READING = """

class Reading(TorchModel):
    name = "reading"
    summary = "one layer behind one that is read from a file"

    def module(self):
        import numpy as np

        read = nn.Linear(64, 64, bias=False).requires_grad_(False)
        read.weight.copy_(torch.from_numpy(np.load({file!r})))
        return nn.Sequential(read, nn.Linear(64, self.facts.classes))
"""


def test_threads_of_torch_are_as_they_were():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    desim.run(scenario("convolution"))
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


@pytest.mark.slow
def test_noise_is_accounted_as_of_any_model():
    local = {"solver": "noisy", "epochs": 2, "step": 0.1}
    run = desim.run(
        scenario("layers", problem={"clip": 0.5}, privacy={"noise": {"sigma": 0.2}},
                 algorithm={"name": "fedavg", "local": local})
    )  # fmt: skip
    problem = problem_of("layers", 0.5)
    first = run.releases[run.releases["round"] == 1].sort_values("agent")
    # two steps gamma = 0.1 on a mean over m rows, of which one moves each by 2 clip gamma / m
    reach = 2.0 * 0.5 * 0.1 / problem.rows * np.sqrt(2.0)
    assert np.allclose(first["sensitivity"].to_numpy(), reach)
    assert np.isfinite(run.epsilon()["epsilon"].to_numpy()).all()


@pytest.mark.slow
def test_values_alone_teach_a_network_too():
    """D-ZOA with the exact differences of float64: near the gradient, and the same on engines."""
    from desim.problem.kernels.zeroth import estimates

    narrow, samples = {"name": "layers", "hidden": 1}, 4000
    double = scenario(narrow, problem={"precision": "float64"})
    problem = build(load(double)).settings.problem
    x, who = problem.loss.start, np.arange(2)
    at = np.tile(x, (2, 1))
    found = estimates(who, at, 1, 5, problem.data, samples=samples, u2=1e-6)
    g = gradient(who, at, problem.data)
    away = np.linalg.norm(found - g, axis=1) / np.linalg.norm(g, axis=1)
    assert 3.0 * np.sqrt((problem.dim + 1) / samples) < 0.45
    assert (away < 3.0 * np.sqrt((problem.dim + 1) / samples)).all()  # the deviation of a mean
    algorithm = {"name": "d-zoa", "rho": 1.0, "inner": 2, "samples": 2, "u1": 0.1, "step": 0.1}
    few = {"precision": "float64", "clip": 1.0}
    tree = scenario(narrow, algorithm=algorithm, network=RING, problem=few, privacy=NOISE)
    one, two = (desim.run({**tree, "engine": engine}) for engine in ("cohort", "agents"))
    assert one.metrics.equals(two.metrics)
    assert one.releases.equals(two.releases)
    with pytest.raises(InputError, match=r"precision: found float32, but d-zoa.*float64"):
        desim.run(scenario(algorithm=algorithm, network=RING))
