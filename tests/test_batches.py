"""Batches of a run on workers: the bits of one machine, or a refusal; whoever is killed."""

import pickle
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from forked import forked
from mutant import mutant
from scenarios_of_models import modelled

import desim
from desim.errors import InputError, RunError
from desim.problem.kernels import modelled as kernels
from desim.problem.kernels.modelled import elsewhere
from desim.problem.losses import model_loss
from desim.problem.problem import Gathered, Problem
from desim.runs import batches, processes
from desim.runs.trackers import Tracker
from desim.scenario import registry
from desim.scenario.build import build
from desim.scenario.load import loaded

PLUGIN = Path(__file__).parent / "plugins" / "shared_models.py"
GRAPH = {"topology": "ring", "link": {"latency": "10 ms"}}
CASES = {
    "training": {},
    "few at a time": {"policy": {"buffer": 2}, "compute": {"speed": {"uniform": [500, 2000]}}},
    "gradients": {"algorithm": {"name": "dsgd", "alpha": 0.05, "batch": 3}, "network": GRAPH},
    "values": {
        "algorithm": {"name": "d-zoa", "rho": 1.0, "inner": 2, "samples": 2, "step": 0.3},
        "network": GRAPH,
        "observe": {"metrics": ["loss", "consensus"]},
    },
}


def scenario(fault="", **changes):
    """Five agents whose model is that of the plug-in."""
    given = modelled(**changes)
    given["engine"] = "cohort"
    given["problem"] |= {"agents": 5, "model": {"name": "shared-quadratic", "fault": fault}}
    return loaded({**given, "plugins": [str(PLUGIN)]})


class Here:
    """Two workers of this process, who have but what is sent to them."""

    def __init__(self, module=batches, slots=2):
        self.module, self.where, self.lost, self.slots = module, {"here": slots}, 0, lambda: slots
        self.open = 0

    def end(self):
        pass

    def answers(self, parts, shipment):
        there = plugged()
        self.open += 1
        try:
            for part in reversed(parts):
                there.THERE = True
                try:
                    arrived = pickle.loads(pickle.dumps((part, shipment)))
                    said = self.module.answer(*arrived, "worker w")
                finally:
                    there.THERE = False
                yield said
        finally:
            self.open -= 1


class Deaf(Tracker):
    """One that is not to hear of any run."""

    def opened(self, run):
        raise AssertionError(run)


def plugged():
    """The module of the plug-in."""
    return sys.modules[registry.module_of(PLUGIN)]


@contextmanager
def by(crew, module=batches):
    """Context in which a crew computes."""
    found = module.Batches(crew, (PLUGIN,))
    token = elsewhere.set(found)
    try:
        yield found
    finally:
        elsewhere.reset(token)


def bits(run):
    """All that a run has."""
    tables = [one.to_csv(float_format="%a") for one in (run.events, run.metrics, run.releases)]
    arrays = {**run.state, "model": run.model}
    return tables, {name: None if a is None else a.tobytes() for name, a in arrays.items()}


@pytest.fixture(params=CASES)
def case(request):
    return scenario(**CASES[request.param])


def test_the_bits_are_those_of_one_machine(case, monkeypatch):
    monkeypatch.setattr(batches, "WATCHED", 10**6)
    alone = desim.run(case)
    with by(Here()) as found:
        together = desim.run(case)
    assert bits(together) == bits(alone)
    assert found.facts["sent"] > 0
    assert together.manifest["workers"]["here"] == found.facts["here"]
    assert "workers" not in alone.manifest


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("out[part.place] = self", "out[: part.rows] = self"),
        ("rows = half if np.array_equal(half, rows) else rows", "rows = half"),
        ("all((one == bits[0]).all()", "any((one == bits[0]).any()"),
        ("cuts = [0, *(rows * parts", "cuts = [1, *(rows * parts"),
    ],
)
def test_wrong_twins_have_others(right, wrong, monkeypatch):
    case = scenario()
    alone, twin = bits(desim.run(case)), mutant(batches, right, wrong)
    monkeypatch.setitem(sys.modules, twin.__name__, twin)  # where what is sent has its classes
    with by(Here(twin, slots=1), twin):
        try:
            found = bits(desim.run(case))
        except RunError as error:  # they are found out
            found = str(error)
    assert found != alone
    assert isinstance(found, tuple) or "other bits there" in found


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("company", "worker w: an agent's numbers depend on who is computed with it; allowed"),
        ("bits", "worker w: trained has other bits there than here; allowed: this machine's kind"),
        ("raises", "worker w: ValueError: no gradient today, which does not happen here"),
    ],
)
def test_what_would_have_other_bits_is_refused(fault, why):
    crew = Here(slots=1)
    with by(crew), pytest.raises(RunError, match=why):
        desim.run(scenario(fault))
    assert crew.open == 0


def test_nothing_is_left_of_a_batch_that_was_given_up():
    """A run that fails measures its last model: answers of before would be taken for its losses."""
    crew, ended = batches.Local(2), []
    idle, busy = SimpleNamespace(job=None), SimpleNamespace(job="of before")
    crew.every, crew.end, crew.results = [idle, busy], ended.append, lambda _: iter("ab")
    answers = crew.answers(["first", "second"], None)
    next(answers)
    assert crew.waiting() == 2
    answers.close()
    assert crew.waiting() == 0
    assert ended == [busy]
    assert [*crew.answers([], None)] == ["a", "b"]


@pytest.mark.parametrize("fault", ["everywhere", "first"])
def test_what_a_model_raises_is_said_as_on_one_machine(fault):
    case, said = scenario(fault), []
    for crew in (None, Here()):
        with pytest.raises(RunError) as error, by(crew) if crew else pytest.MonkeyPatch.context():
            desim.run(case)
        said.append(str(error.value))
    assert said[0] == said[1]
    assert "shared_models.py, line" in said[0]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("p], x) == data.b[p])", "p], x) == data.b[parts[0]])"), ("/ np.size(b)", "/ len(each)")],
)
def test_test_rows_are_shared_out(right, wrong):
    """Two rows at a time, two times a part: as all rows at once."""
    A, parts = np.random.default_rng(1).normal(size=(8, 3)), []
    x, b = np.ones(3), np.array([1, 0, 0, 1, 0, 1, 1, 1])

    def by_two(job, arrays, rows, common, data, out):
        for low in range(0, rows, 2):
            parts.append(low)
            out[low : low + 2] = job(*arrays(slice(low, low + 2)), *common, data)
        return True

    loss = SimpleNamespace(together=lambda _: 2, predictions=lambda A, x: (A @ x > 0).astype(int))
    said = []
    for module in (kernels, mutant(kernels, right, wrong)):
        token = module.elsewhere.set(by_two)
        said.append(module.accuracy(A, b, x, loss))
        module.elsewhere.reset(token)
    assert said[0] == float(np.mean(loss.predictions(A, x) == b))
    assert said[1] != said[0]
    assert parts == [0, 2] * 2


def test_rows_are_measured_in_parts_that_take_as_long(monkeypatch):
    loss = build(scenario()).problem.data.loss
    assert model_loss.TOGETHER == 256  # bits of measured losses may rest on it: see the changelog
    for rows, many in ((0, 1), (1, 1), (256, 256), (257, 129), (360, 180), (1438, 240)):
        assert loss.together(rows) == many
    monkeypatch.setattr(model_loss, "ROOM", 1)
    assert loss.together(360) == 1


def test_how_many_rows_go_together_moves_a_loss_and_no_model(monkeypatch):
    """Of a model whose losses depend on how many: what the changelog says of TOGETHER."""
    case, models, values = scenario(observe={"metrics": ["loss"]}), [], []
    real = plugged().Quadratic.loss

    def crowded(self, x, rows):
        return real(self, x, rows) * (1.0 + 1e-14 * len(rows.labels))

    monkeypatch.setattr(plugged().Quadratic, "loss", crowded)
    for many in (1024, 3):
        monkeypatch.setattr(model_loss, "TOGETHER", many)
        run = desim.run(case)
        models.append(bits(run)[1])
        values.append(run.metrics["value"].to_numpy())
    assert models[0] == models[1]
    assert not np.array_equal(*values)
    assert np.allclose(*values, rtol=1e-12, atol=0.0)


def test_a_run_goes_on_and_is_replayed_on_workers(tmp_path, monkeypatch):
    whole = desim.run(scenario(stop={"rounds": 4}))
    desim.run(scenario(stop={"rounds": 2}), tmp_path / "run")
    monkeypatch.setattr(batches, "Local", lambda _: Here())
    resumed = desim.resume(tmp_path / "run", {"stop.rounds": 4}, workers=2)
    assert bits(resumed) == bits(whole)
    assert resumed.manifest["workers"]["sent"] > 0
    assert desim.replay(resumed, workers=2).same
    with pytest.raises(InputError, match="workers: found -1"):
        desim.resume(tmp_path / "run", {"stop.rounds": 5}, workers=-1)
    assert desim.open(tmp_path / "run").manifest["rounds"] == 4


def test_jobs_that_are_too_small_stay_here(monkeypatch, caplog):
    case, real = scenario(stop={"rounds": 8}), batches.answer
    for seconds, stays in ((0.0, True), (1e9, False)):
        timed = partial(lambda seconds, *a: real(*a)._replace(seconds=seconds), seconds)
        caplog.clear()
        with monkeypatch.context() as patch, by(Here()) as found:
            patch.setattr(batches, "answer", timed)
            desim.run(case)
        assert any("jobs (trained) too small" in text for text in caplog.messages) is stays
        assert (found.facts["here"] > 15) is stays


def test_what_cannot_be_done_is_refused_before_the_run(tmp_path, monkeypatch):
    case, own = scenario(), modelled(model=None)
    for arguments, why in (
        ({"workers": -1}, "workers: found -1; allowed: a whole number, at least 0"),
        ({"workers": "2"}, "workers: found '2'; allowed: a whole number"),
        ({"workers": 2.5}, r"workers: found 2\.5; allowed: a whole number"),
        ({"workers": 10**6}, "workers: found 1000000; allowed: at most .* each is a process"),
        ({"workers": True}, "workers: found true; allowed: a whole number"),
        ({"dask": ""}, "dask: found ''; allowed: the address of a scheduler"),
        ({"dask": 5}, "dask: found 5; allowed: the address of a scheduler"),
        ({"workers": 2, "dask": "tcp://a:1"}, "dask: found workers too"),
    ):
        with pytest.raises(InputError, match=why):
            desim.run(case, tmp_path / "out", **arguments)
    with pytest.raises(InputError, match=r"found with loss squared; allowed: a problem\.model"):
        desim.run(own, tmp_path / "out", workers=2)
    monkeypatch.setattr(processes, "current_process", lambda: SimpleNamespace(daemon=True))
    with pytest.raises(InputError, match="found 2 in a daemon process; allowed: 0"):
        desim.run(case, tmp_path / "out", workers=2)
    assert not (tmp_path / "out").exists()
    with batches.shared_out(loaded(own), workers=0):
        assert batches.facts() == {}


def test_a_worker_that_is_not_as_here_says_in_what(tmp_path, monkeypatch):
    data = build(scenario()).problem.data
    whole, here = (data.A, data.b, data.loss), batches.circumstances(data.loss)
    for plugins, known, why in (
        ((tmp_path / "gone.py",), here, r"gone\.py does not exist"),
        ((), here | {"numpy": "0.1"}, "found numpy .*; allowed: 0.1, as here"),
        ((), here | {"device": "Card A"}, "found device the processor; allowed: Card A"),
        ((), here | {"model": "another"}, "found another file of the model"),
    ):
        sent = pickle.loads(pickle.dumps(batches.Shipment(whole, plugins, known)))
        part = batches.Part(slice(0, 1), print, (), (), data, (), 0)
        with pytest.raises(InputError, match=why):
            sent.unpacked()
        assert batches.answer(part, sent, "w").refused
    sent = pickle.loads(pickle.dumps(batches.Shipment(whole, (), here)))
    assert sent.unpacked()[2] == data.loss
    monkeypatch.setattr(batches, "circumstances", lambda loss: {**here, "numpy": "0.1"})
    assert sent.unpacked()[2] == data.loss  # once
    on = pickle.loads(pickle.dumps(sent))  # workers of a cluster hand it on
    with pytest.raises(InputError, match=r"found numpy 0\.1; allowed: .*, as here"):
        on.unpacked()


def test_a_worker_knows_no_warnings_of_numpy_as_no_play_does():
    data = build(scenario()).problem.data
    shipment = batches.Shipment((data.A, data.b, data.loss), (), {})
    one = (batches.Packed.of(np.zeros(1)),)
    part = batches.Part(slice(0, 1), lambda *_: np.log([[0.0, 0.0]]), one, (), data, (2,), 0)
    assert np.isneginf(batches.answer(part, shipment, "w").found.array).all()


def test_what_a_model_prints_is_there_before_its_process_is_ended(monkeypatch):
    said, arriving = [], iter([3])
    out = SimpleNamespace(flush=partial(said.append, "printed"))
    still = SimpleNamespace(signal=lambda *_: None, SIGINT=0, SIG_IGN=0)
    monkeypatch.setattr(processes, "signal", still)
    jobs = SimpleNamespace(send=said.append, recv=partial(next, arriving))
    monkeypatch.setattr(processes, "sys", SimpleNamespace(stdout=out))
    with pytest.raises(StopIteration):
        processes.serve(jobs, lambda job: job + 1)
    assert said == ["ready", "printed", 4]


def test_test_rows_whose_labels_are_arrays_are_sent_once():
    labels, seen = Gathered(np.ones((4, 2))), []
    loss = SimpleNamespace(classifies=True, modelled=True, together=lambda rows: 2)
    loss.predictions = lambda A, x: np.ones((len(A), 2))
    problem = SimpleNamespace(test_A=np.ones((4, 3)), test_b=labels, loss=loss)

    def noting(job, arrays, rows, common, data, out):
        seen.append(data.b)
        out[:] = job(*arrays(slice(0, rows)), *common, data)
        return True

    token = elsewhere.set(noting)
    assert Problem.accuracy(problem, np.ones(3)) == 1.0
    elsewhere.reset(token)
    assert seen == [labels]


def test_no_tracker_hears_of_a_run_that_workers_cannot_go_on_with(tmp_path):
    desim.run(modelled(model=None), tmp_path / "run")
    with pytest.raises(InputError, match="workers: found with loss squared"):
        desim.resume(tmp_path / "run", {"stop.rounds": 9}, trackers=[Deaf()], workers=2)


def test_on_a_graphics_card_parts_are_the_groups_of_one_machine(monkeypatch):
    case = scenario()
    data = build(case).problem.data
    monkeypatch.setattr(type(data), "group", property(lambda _: 2))
    assert [one.stop for one in batches.Batches(Here(), ())._places(5, data)] == [1, 2, 3, 4, 5]
    monkeypatch.setattr(type(data.loss.model), "hardware", "Card A")
    assert [one.stop for one in batches.Batches(Here(), ())._places(5, data)] == [2, 4, 5]
    monkeypatch.setattr(type(data.loss.model), "threads", True)
    monkeypatch.setattr(batches, "threads", lambda: 3)
    assert [one.stop for one in batches.Batches(Here(), ())._places(5, data)] == [1, 3, 5]
    whole = desim.run(case)
    with by(Here()):
        assert bits(desim.run(case)) == bits(whole)


def test_a_process_that_is_killed_changes_nothing_but_a_sentence(tmp_path, caplog):
    case = scenario(str(tmp_path / "mark"))
    alone = bits(desim.run(case))
    with forked():
        found = desim.run(case, workers=2)
    assert bits(found) == alone
    assert found.manifest["workers"]["lost"] == 1
    assert any("a process ended (signal 9); another one does its" in one for one in caplog.messages)


@pytest.mark.filterwarnings("default")  # of dask's own modules
@pytest.mark.slow
def test_a_dask_cluster_has_the_same_bits(tmp_path):
    from distributed import LocalCluster

    case = scenario()
    with LocalCluster(n_workers=2, processes=False, dashboard_address=":0") as machines:
        found = desim.run(case, dask=machines.scheduler_address)
        machines.scale(0)
    assert bits(found) == bits(desim.run(case))
    assert found.manifest["workers"]["sent"] > 0


def test_the_file_of_a_model_is_known_as_it_was_imported(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(PLUGIN.read_text())
    given = modelled()
    given["problem"]["model"] = "shared-quadratic"
    case = loaded({**given, "plugins": [str(file)]})
    loss = build(case).problem.data.loss
    before = repr(loss)
    file.write_text(PLUGIN.read_text().replace("0.5 *", "0.25 *"))
    assert repr(loss) == before
