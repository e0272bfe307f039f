"""Studies on a Dask cluster: workers and schedulers that go away, folders that are elsewhere."""

import os
import signal
import subprocess
import sys
import threading
import time

import pandas as pd
import pytest
from distributed import Client, LocalCluster
from study_scenes import BASE, STUDY, changed

import desim
from desim.errors import InputError, RunError
from desim.experiments.studies.folder import store_run
from desim.experiments.studies.study import plan, study
from desim.experiments.studies.work import Job, run_job
from desim.runs import processes

pytestmark = pytest.mark.filterwarnings("default")  # of dask's own modules


@pytest.mark.slow
def test_a_study_survives_one_of_two_workers(tmp_path):
    long = changed(base={**BASE, "stop": {"rounds": 200}})
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as machines,
        Client(machines, set_as_default=False) as client,
    ):
        victims = list(client.run(os.getpid).values())

        def kill(done, total, failed):
            if victims:
                os.kill(victims.pop(), signal.SIGKILL)
                victims.clear()

        made = study(long, tmp_path, dask=machines.scheduler_address, progress=kill)
    assert not victims
    assert list(made.runs["status"]) == ["done"] * 8
    alone = study(long, workers=0)
    pd.testing.assert_frame_equal(made.runs.drop(columns="wall"), alone.runs.drop(columns="wall"))
    assert desim.open(next((tmp_path / "runs").iterdir())).status == "done"


@pytest.mark.slow
def test_a_scheduler_that_goes_away_loses_nothing(tmp_path):
    file = tmp_path / "scheduler.json"
    command = [
        sys.executable,
        "-m",
        "distributed.cli.dask_scheduler",
        "--port",
        "0",
        "--no-dashboard",
    ]
    scheduler = subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--scheduler-file", str(file)], stderr=subprocess.DEVNULL
    )
    try:
        while not file.exists():
            time.sleep(0.05)
        address = pd.read_json(file, typ="series")["address"]
        study(changed(grid={"seed": [0]}), tmp_path / "out", workers=0)
        threading.Timer(1.5, scheduler.kill).start()
        with pytest.raises(RunError, match=r"scheduler at .* is gone; what was done is stored"):
            study(STUDY, tmp_path / "out", dask=address)
    finally:
        scheduler.kill()
        scheduler.wait()
    status = pd.read_parquet(tmp_path / "out" / "runs.parquet")["status"]
    assert list(status) == ["done"] + ["stopped"] * 7
    assert study(STUDY, tmp_path / "out", workers=0).complete


def test_nobody_at_the_address_is_bad_input(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "PATIENCE", 0.3)
    for address in ("tcp://127.0.0.1:1", "nonsense://x"):
        with pytest.raises(InputError, match="no scheduler answers at"):
            study(STUDY, tmp_path / "out", dask=address)
        assert not (tmp_path / "out").exists()


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match="pip install"):
        study(STUDY, dask="tcp://127.0.0.1:1")


def test_a_worker_far_away_sends_its_files(tmp_path):
    [job, *_] = plan(STUDY, tmp_path / "out").jobs
    there = run_job(Job(**{**vars(job), "token": "of another machine"}))
    assert there.status == "done"
    assert not (tmp_path / "out").exists()
    store_run(job.place, there.files)
    here = desim.open(job.place)
    again = desim.run(BASE, overrides={"seed": 0, "policy": "all"})
    assert here.events.equals(again.events)
    assert here.metrics.equals(again.metrics)
    assert (job.place / "scenario.yaml").read_text() == job.text
