"""What TensorBoard's and MLflow's own readers find is the log, and a tracker changes no run."""

import json
import logging
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from cases import NOISY, graph, star
from mutant import mutant
from test_signals import same

import desim
from desim.columns import Words
from desim.engine import world
from desim.errors import AtOnce, InputError
from desim.interface.cli import main
from desim.runs import trackers
from desim.runs.trackers import event_files, so_far

pytest.importorskip("tensorboard")
SHORT = {"stop": {"rounds": 4}, "engine": "cohort"}
POWER = {"compute": {"power": {"idle": "2 W", "computing": "5 W"}}}
CASES = {
    "star": star(algorithm={"local": NOISY}, problem={"clip": 1.0}, privacy={}, **SHORT),
    "graph": graph(**SHORT, **POWER),
}


def expected(run):
    """{name: [(time, round, value)]} of the network's metrics, and of what was spent by then."""
    rows = run.metrics[run.metrics.agent < 0]
    found = {
        str(name): list(zip(part.time, part["round"], part.value, strict=True))
        for name, part in rows.groupby("metric", observed=True)
    }
    instants = dict(zip(rows.time, rows["round"], strict=True)).items()
    came = run.events[run.events.kind == "deliver"]
    found["bytes delivered"] = [
        (t, k, float(came.bytes[came.time <= t].sum())) for t, k in instants
    ]
    spent = run.epsilon()
    view, delta, method = (spent.attrs[one] for one in ("view", "delta", "method"))
    name = f"epsilon/{view}/record/replace-one/delta {delta:g}/{method}"
    most = [(t, k, spent.epsilon[spent.time <= t].max()) for t, k in instants]
    found[name] = [(t, k, 0.0 if np.isnan(value) else value) for t, k, value in most]
    if run.powered:
        joules = run.joules_by(np.array([t for t, _ in instants]))
        found["joules"] = [(t, k, one) for (t, k), one in zip(instants, joules, strict=True)]
    return found


def on_board(folder, place=None):
    """{name: [(time, round, value)]} of the only run in a folder, by TensorBoard's own reader."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    (place,) = Path(folder).iterdir() if place is None else [Path(folder) / place]
    found = EventAccumulator(str(place), {"tensors": 0})
    found.Reload()
    return {
        name: [(one.wall_time, one.step, make_ndarray(one.tensor_proto)[()]) for one in every]
        for name in found.Tags()["tensors"]
        if not name.startswith("_hparams_") and (every := found.Tensors(name))
    }


def played(case, folder, **more):
    """A run that TensorBoard is told of in this folder."""
    return desim.run(case, trackers=[desim.TensorBoard(folder)], **more)


@pytest.mark.parametrize("name", CASES)
def test_tensorboard_reads_the_log_to_the_bit(tmp_path, name):
    run = played(CASES[name], tmp_path / "logs", out=tmp_path / "run")
    assert on_board(tmp_path / "logs") == expected(run)
    assert same(run, desim.run(CASES[name]))
    desim.export(tmp_path / "run", "tensorboard", tmp_path / "again")
    assert on_board(tmp_path / "again") == expected(run)


@pytest.mark.parametrize(
    ("module", "right", "wrong"),
    [
        (event_files, "np.float64(value)", "np.float32(value)"),
        (event_files, "step=step", "step=step + 1"),
        (trackers, "if agent == NETWORK", "if name != 'loss'"),
        (trackers, "totals(times).tolist(), known", "totals(0.5 * times).tolist(), known"),
    ],
)
def test_wrong_numbers_are_noticed(tmp_path, monkeypatch, module, right, wrong):
    made = mutant(module, right, wrong)
    for name in ("writes", "_write"):
        if module is event_files:
            monkeypatch.setattr(desim.TensorBoard, name, getattr(made.TensorBoard, name))
    if module is trackers:
        for name in ("rows", "_spent"):
            monkeypatch.setattr(trackers.Tracker, name, getattr(made.Tracker, name))
    run = played(CASES["star"], tmp_path / "logs")
    assert on_board(tmp_path / "logs") != expected(run)


def test_mlflow_reads_the_log_to_the_bit(tmp_path, monkeypatch):
    tracking = pytest.importorskip("mlflow.tracking")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    case = CASES["star"]
    run = desim.run(case, trackers=[desim.MLflow(tmp_path / "live")])
    desim.export({"a": [run]}, "mlflow", tmp_path / "later")
    for place, title in (("live", run.name), ("later", f"a/seed {case['seed']}")):
        client = tracking.MlflowClient((tmp_path / place).as_uri())
        (experiment,) = [one for one in client.search_experiments() if one.name == run.name]
        (found,) = client.search_runs([experiment.experiment_id])
        assert (found.info.run_name, found.info.status) == (title, "FINISHED")
        assert found.data.params["algorithm.rho"] == "0.5"
        assert found.data.params["seed"] == str(case["seed"])
        assert found.data.params["version.desim"] == desim.__version__
        read = {
            name: client.get_metric_history(found.info.run_id, name) for name in found.data.metrics
        }
        clock = {one.step: one.value for one in read.pop("virtual seconds")}
        values = {
            name: [(clock[one.step], one.step, one.value) for one in every]
            for name, every in read.items()
        }
        assert values == expected(run)
        assert all(
            one.timestamp == round(1000.0 * clock[one.step]) for every in read.values()
            for one in every
        )  # fmt: skip


def test_a_full_disk_ends_the_tracker_alone(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(event_files, "NAME", "/dev/full")
    with caplog.at_level(logging.WARNING, "desim"):
        run = played(CASES["star"], tmp_path)
    assert run.status == "done"
    assert same(run, desim.run(CASES["star"]))
    (said,) = [one.getMessage() for one in caplog.records]
    assert said.startswith("TensorBoard: [Errno 28] No space left on device; nothing more")
    with pytest.raises(InputError, match=r"export: TensorBoard: .* No space left"):
        desim.export(run, "tensorboard", tmp_path / "late")
    made = mutant(trackers, "except Exception as error", "except ValueError as error")
    monkeypatch.setattr(trackers.Tracker, "forgiven", made.Tracker.forgiven)
    tracker = desim.TensorBoard(tmp_path / "wrong")
    with pytest.raises(Exception, match="No space left"):
        desim.run(CASES["star"], trackers=[tracker])
    with suppress(OSError):
        tracker.file.close()


def test_what_can_be_known_is_refused_before_the_run(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file: is a file; allowed: a folder"):
        played(CASES["star"], tmp_path / "file", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    board = desim.TensorBoard(tmp_path / "logs")
    with pytest.raises(InputError, match="workers: found with loss logistic"):
        desim.run(CASES["star"], trackers=[board], workers=2)
    assert not (tmp_path / "logs").exists()
    for wrong in (board, "logs", [desim.TensorBoard], 5):
        with pytest.raises(InputError, match=r"trackers: found .*; allowed: a list"):
            desim.run(CASES["star"], trackers=wrong)
    with pytest.raises(InputError, match=r"x: cannot be written .File name too long"):
        board.begins(300 * "x", {})
    for package, tracker in (("tensorboard", desim.TensorBoard), ("mlflow", desim.MLflow)):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(InputError, match=rf"pip install 'desim\[{package}\]'"):
            tracker(tmp_path / "logs")


def test_each_run_of_an_export_has_a_folder_inside_it(tmp_path):
    case = star(problem={"agents": 2}, stop={"rounds": 1}, engine="cohort")
    one, other = desim.run(case, tmp_path / "one"), desim.run(case)
    labelled = {"a/b": [one, other], "a-b": [tmp_path / "one"], "..": one, 99 * "é": [one]}
    desim.export(labelled, "tensorboard", tmp_path / "logs" / "in")
    found = [str(path.parent) for path in (tmp_path / "logs").rglob(event_files.NAME)]
    seeds = [f"seed {case['seed']}{more}" for more in ("", "-2", "-3")]
    places = [f"a-b/{seed}" for seed in seeds] + [f"{60 * 'é'}/{seeds[0]}", f"base/{seeds[0]}"]
    assert sorted(found) == sorted(str(tmp_path / "logs" / "in" / place) for place in places)


def test_parameters_that_no_float_has_are_texts():
    head = {"seed": 2**53 + 1, "versions": {}}
    found = trackers.parameters(head, {"a": {"b": True, "c": 2**53, "d": -(2**60), "e": 0.5}})
    expected = {"a.b": True, "a.c": 2**53, "a.d": str(-(2**60)), "a.e": 0.5}
    assert found == {**expected, "seed": str(2**53 + 1)}


def test_the_commands_tell_of_runs_and_of_studies(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(json.dumps(CASES["star"]))
    for words in (
        ["run", "s.yaml", "-o", "run", "--tensorboard", "logs"],
        ["export", "run", "--to", "tensorboard"],
    ):
        with pytest.raises(SystemExit) as left:
            main(words)
        assert left.value.code == 0
    assert capsys.readouterr().out.splitlines()[-1] == "run/tensorboard"
    assert on_board("logs") == on_board("run/tensorboard") != {}
    desim.study({"name": "two", "base": CASES["star"], "grid": {"seed": [1, 2]}}, "two",
                workers=0)  # fmt: skip
    with pytest.raises(SystemExit):
        main(["export", "two", "--to", "tensorboard", "-o", "of-two"])
    assert sorted(one.name for one in Path("of-two").glob("*/*")) == ["seed 1", "seed 2"]


def test_a_resumed_run_is_told_from_its_start(tmp_path):
    """Not from where it was killed: as a run that nobody stopped."""

    def killed(now):
        raise AtOnce

    with pytest.raises(AtOnce):
        desim.run(CASES["star"], out=tmp_path / "run", progress=killed)
    with pytest.raises(InputError, match=r"^trackers: found"):
        desim.resume(tmp_path / "run", trackers=["board"])
    assert desim.open(tmp_path / "run").status == "interrupted"
    run = desim.resume(tmp_path / "run", trackers=[desim.TensorBoard(tmp_path / "board")])
    assert run.status == "done"
    assert on_board(tmp_path / "board") == expected(run)
    desim.resume(tmp_path / "run", trackers=[desim.TensorBoard(tmp_path / "done")])
    assert on_board(tmp_path / "done") == expected(run)


class Noted(desim.TensorBoard):
    """Remembers what it is told while the run plays, and what is told in the end."""

    def stored(self, run):
        self.live, self.late = self.values_told, []
        self.values_told = self.late
        super().stored(run)

    def opened(self, run):
        self.values_told = []
        super().opened(run)

    def writes(self, values):
        self.values_told += values
        super().writes(values)


def told_meanwhile(tmp_path, monkeypatch, case, name="logs"):
    """The run, and (names, times) of what was spent that a tracker was told while it played."""
    monkeypatch.setattr(world, "FLUSH_SECONDS", 0.0)
    monkeypatch.setattr(so_far, "REST", 0.0)
    tracker = Noted(tmp_path / name)
    run = desim.run(case, trackers=[tracker])
    assert on_board(tmp_path / name) == expected(run)
    return run, [one for one in tracker.live if one.name not in run.observed]


def test_bytes_and_an_exact_epsilon_are_told_while_the_run_plays(tmp_path, monkeypatch, caplog):
    """To the bits that the whole run has, which TensorBoard's reader finds."""
    case = CASES["star"]
    run, live = told_meanwhile(tmp_path, monkeypatch, case)
    names = {one.name for one in live}
    assert {name.partition("/")[0] for name in names} == {"bytes delivered", "epsilon"}
    for name in names:
        assert len([one for one in live if one.name == name]) >= 3  # of 5 instants
    assert same(run, desim.run(case))
    made = mutant(so_far, 'side="right")]', 'side="left")]')
    monkeypatch.setattr(so_far.Bytes, "totals", made.Bytes.totals)
    with pytest.raises(AssertionError):
        told_meanwhile(tmp_path, monkeypatch, case, "wrong")
    assert "all of the run says more" in caplog.text


@pytest.mark.parametrize("why", ["mechanism", "budget"])
def test_what_cannot_be_known_meanwhile_is_told_in_the_end(tmp_path, monkeypatch, why):
    if why == "mechanism":  # sums of divergences, which the end of the run prices once more
        case = CASES["graph"] | {"privacy": {"noise": {"kind": "laplace", "sigma": 0.1}}}
    else:  # what is released hangs on data: epsilon is that of the budget, from the start
        case = CASES["star"] | {"stop": {"metric": {"error": 1e-9}, "rounds": 4}}
        case |= {"privacy": {"budget": 500.0}}
    _, live = told_meanwhile(tmp_path, monkeypatch, case)
    assert {one.name for one in live} == {"bytes delivered"}


def test_what_is_spent_is_known_once_a_later_row_is_there():
    """Rows of one instant may come in two parts."""

    def known(module):
        meter, tracker = module.Bytes(), desim.TensorBoard("logs")
        tracker.instants = {0.0: 0, 1.0: 1, 2.0: 2, 3.0: 3}
        words, found = Words(np.zeros(2, np.int32), ["deliver"]), []
        for times in ([0.5, 1.0], [1.0, 3.0], [4.0, 5.0]):
            columns = {"time": np.array(times), "kind": words, "bytes": np.array([10, 5])}
            meter.take("events", columns)
            found.append([one[1:] for one in tracker._known(meter)])
        return found

    right = [[(0.0, 0, 0.0)], [(1.0, 1, 25.0), (2.0, 2, 25.0)], [(3.0, 3, 30.0)]]
    assert known(so_far) == right
    for right_words, wrong in (
        ("float(when[-1])", "float(when[-1]) + 1e-9"),
        ("self.total, over = float(found[-1])", "self.total, over = 0.0"),
    ):
        assert known(mutant(so_far, right_words, wrong)) != right


def hparams(path):
    """The parameters of a member, or what a group says that varies, as TensorBoard reads them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import plugin_data_pb2

    found = EventAccumulator(str(path), {"tensors": 0}).Reload().summary_metadata
    (one,) = [found[name] for name in found if name.startswith("_hparams_")]
    data = plugin_data_pb2.HParamsPluginData.FromString(one.plugin_data.content)
    if data.HasField("experiment"):
        domains = {
            one.name: [value.number_value for value in one.domain_discrete.values]
            for one in data.experiment.hparam_infos
        }
        return domains, [one.name.tag for one in data.experiment.metric_infos]
    fields = data.session_start_info.hparams
    return {name: one.number_value or one.string_value for name, one in fields.items()}


STUDY = {
    "name": "rhos", "base": CASES["star"] | {"seed": 3},
    "grid": {"algorithm.rho": [0.5, 0.7], "network.link.latency": ["20 ms", "1 s"]},
}  # fmt: skip


def test_a_study_is_a_group_of_runs_that_varies_in_its_keys(tmp_path):
    """Those that share a training, those that are stored already, and those that are played."""
    study = desim.study(STUDY, tmp_path / "study", workers=0, trackers=[board := desim.TensorBoard(
        tmp_path / "logs")])  # fmt: skip
    cases = {label: one for label, (one,) in study.by_case().items()}
    for label, run in cases.items():
        assert on_board(tmp_path / "logs" / "rhos", f"{label}/seed 3") == expected(run)
        assert same(run, desim.run(run.scenario))
        found = hparams(tmp_path / "logs" / "rhos" / label / "seed 3")
        assert found["algorithm.rho"] == run.written["algorithm"]["rho"]
        assert found["seed"] == 3.0
    assert len(cases) == 4
    domains, metrics = hparams(tmp_path / "logs" / "rhos")
    assert domains == {"algorithm.rho": [0.5, 0.7], "network.link.latency": [0.02, 1.0]}
    assert set(metrics) == {"bytes delivered", *study.run(study.runs.run[0]).observed}
    again = desim.study(STUDY, tmp_path / "study", workers=0, trackers=[board])
    assert all(one.stored for one in again.results.values())
    for label, run in cases.items():  # a group of its own, as what goes on has other runs beside
        assert on_board(tmp_path / "logs" / "rhos-2", f"{label}/seed 3") == expected(run)


def test_a_group_that_cannot_be_written_is_refused_and_a_member_is_not(
    tmp_path, monkeypatch, caplog
):
    (tmp_path / "file").write_text("")
    wrong, right = desim.TensorBoard(tmp_path / "file"), desim.TensorBoard(tmp_path / "logs")
    for more in ({"trackers": [wrong]}, {"trackers": [right], "dask": "tcp://127.0.0.1:1"},
                 {"trackers": right}):  # fmt: skip
        with pytest.raises(InputError, match=r"file: is a file|dask: found trackers|a list, of"):
            desim.study(STUDY, tmp_path / "study", **more)
    assert not (tmp_path / "study").exists()
    assert not (tmp_path / "logs").exists()
    begin = desim.TensorBoard._begin

    def full(self, title):
        if self.group:
            raise OSError(28, "No space left on device")
        return begin(self, title)

    monkeypatch.setattr(desim.TensorBoard, "_begin", full)
    study = desim.study(STUDY, workers=0, trackers=[right])
    assert study.complete
    assert set(study.runs.status) == {"done"}
    (said,) = [one.getMessage() for one in caplog.records if one.name == "desim.trackers"]
    assert said.startswith("TensorBoard: [Errno 28] No space left on device; not all of these")


def test_a_tuner_is_a_group_too(tmp_path):
    found = desim.tune(
        {
            "name": "least", "base": CASES["star"],
            "tune": {"vary": {"algorithm.rho": [0.5, 0.6]}, "until": {"error": 1.0}, "runs": 4,
                     "seeds": [1, 2], "fresh": 0, "sampler": "grid"},
        },
        workers=0, trackers=[desim.TensorBoard(tmp_path)],
    )  # fmt: skip
    titles = sorted(str(one.parent.relative_to(tmp_path)) for one in tmp_path.rglob("events*"))
    runs = [f"least/rho {rho}/seed {seed}" for rho in (0.5, 0.6) for seed in (1, 2)]
    assert titles == ["least", *runs]
    assert len(found.runs) == 4
    metrics = ["error", "loss", "bytes delivered"]
    assert hparams(tmp_path / "least") == ({"algorithm.rho": []}, metrics)


def test_mlflow_nests_the_runs_of_a_study(tmp_path, monkeypatch):
    tracking = pytest.importorskip("mlflow.tracking")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    desim.study(STUDY, workers=0, trackers=[desim.MLflow(tmp_path)])
    client = tracking.MlflowClient(tmp_path.as_uri())
    (experiment,) = [one for one in client.search_experiments() if one.name == "rhos"]
    every = client.search_runs([experiment.experiment_id])
    (parent,) = [one for one in every if "mlflow.parentRunId" not in one.data.tags]
    members = [one for one in every if one is not parent]
    assert {one.data.tags["mlflow.parentRunId"] for one in members} == {parent.info.run_id}
    assert {one.info.status for one in every} == {"FINISHED"}
    assert parent.data.tags["desim.varies"] == "algorithm.rho, network.link.latency"
    values = {(one.data.params["algorithm.rho"], one.data.params["network.link.latency"])
              for one in members}  # fmt: skip
    assert values == {(rho, latency) for rho in ("0.5", "0.7") for latency in ("0.02", "1.0")}
