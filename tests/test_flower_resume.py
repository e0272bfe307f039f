"""A Flower run that was stopped goes on to the log of one that never was."""

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'desim[flower]'")

from test_flower import played, scenario

import desim
from desim.errors import Differs

TABLES = "events", "metrics", "releases"
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def alike(one, other):
    return all(getattr(one, name).equals(getattr(other, name)) for name in TABLES)


def test_it_comes_to_the_log_of_one_that_was_never_stopped(tmp_path):
    times = {"work": "measured", "times": str(tmp_path / "times.json")}
    some = dict(config=["fraction=0.5"], compute={"speed": "0.1 /s"}, algorithm=times)
    stopped = desim.run(scenario(**some, rounds=1), tmp_path / "run")
    assert stopped.manifest["rounds"] == 1
    run = desim.resume(tmp_path / "run", {"stop.rounds": 3})
    assert alike(run, played(**some, rounds=3))
    (tmp_path / "times.json").unlink()
    assert not alike(run, played(**some, rounds=3))  # what calls took now is something else


def test_times_that_are_not_those_of_the_run_are_refused(tmp_path):
    times = tmp_path / "times.json"
    some = dict(compute={"speed": "0.1 /s"}, algorithm={"work": "measured", "times": str(times)})
    desim.run(scenario(**some, rounds=1), tmp_path / "run")
    text = times.read_text()
    times.write_text(text.replace(": 0.", ": 7."))
    before = sorted(one.read_bytes() for one in (tmp_path / "run").glob("*.parquet"))
    with pytest.raises(Differs):
        desim.resume(tmp_path / "run", {"stop.rounds": 2})
    assert sorted(one.read_bytes() for one in (tmp_path / "run").glob("*.parquet")) == before
