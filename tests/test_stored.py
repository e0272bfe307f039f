"""`opened` and `stored`: what hangs on a run, and not on a play, hears of it once."""

import logging

import pytest
from cases import graph, star
from mutant import mutant

import desim
from desim.errors import AtOnce, InputError, RunError
from desim.runs import recording

SMALL = {"problem": {"agents": 2}, "engine": "cohort"}
CASE = star(stop={"rounds": 2}, **SMALL)
PLUGIN = """
from desim.errors import InputError
from desim.signals import Listener
HEARD = []
class Notes(Listener):
    name = "notes"
    summary = "what it hears, in order"
    def begun(self, settings):
        self.seen = 0
    def rows(self, table, columns):
        self.seen += len(columns["time"])
    def ended(self, time):
        {ended}
        return {{"rows": self.seen}}
    def opened(self, run):
        HEARD.append(("opened", run.status, run.name, run.written["seed"], len(run.events)))
        {opened}
    def stored(self, run):
        entries = run.listeners.get("notes", {{}}).get("rows")
        HEARD.append(("stored", run.status, entries == self.seen, run.directory))
        {stored}
"""


@pytest.fixture
def noted(tmp_path):
    """noted(play, case, opened, stored, ended): what is heard around a play of a run."""

    def noted(play=desim.run, case=CASE, opened="pass", stored="pass", ended="pass", **more):
        file = tmp_path / f"notes{len(list(tmp_path.glob('*.py')))}.py"
        file.write_text(PLUGIN.format(opened=opened, stored=stored, ended=ended))
        scenario = desim.load({**case, "plugins": [str(file)], "listeners": ["notes"]})
        heard = scenario.listeners[0].of.opened.__globals__["HEARD"]
        heard.clear()
        try:
            play(scenario, **more)
        finally:
            noted.heard = list(heard)
        return noted.heard

    return noted


@pytest.mark.parametrize("case", [CASE, graph(stop={"metric": {"error": 0.5}}, engine="cohort")])
def test_a_run_is_heard_of_once_around_its_play(noted, tmp_path, case):
    out = tmp_path / "run"
    opened, stored = noted(case=case, out=out)
    assert opened == ("opened", "running", desim.open(out).name, case["seed"], 0)
    assert stored == ("stored", "done", True, out)


def test_a_signal_that_is_fired_too_early_or_not_at_all_is_noticed(noted, monkeypatch):
    wrong = mutant(recording, "        self.run = run\n        return run", "        return run")
    monkeypatch.setattr(recording.Hung, "hear", wrong.Hung.hear)
    assert noted()[-1] == ("stored", "running", False, None)
    wrong = mutant(recording, "return Always(one) if hears else lambda", "return lambda")
    monkeypatch.setattr(recording, "_sole", wrong._sole)
    assert noted() == []


def test_of_a_run_that_fails_or_is_killed_it_hears_so(noted):
    with pytest.raises(RunError):
        noted(ended="raise ValueError(1)")
    assert [one[:2] for one in noted.heard] == [("opened", "running"), ("stored", "failed")]

    def killed(scenario):
        def step(now):
            raise AtOnce

        desim.run(scenario, progress=step)

    with pytest.raises(KeyboardInterrupt):
        noted(killed)
    assert [one[:2] for one in noted.heard] == [("opened", "running"), ("stored", "running")]


@pytest.mark.parametrize(
    ("opened", "text"),
    [
        ("raise InputError('no room')", "no room"),
        ("1 / 0", "listeners: notes: opened: ZeroDivisionError: division by zero"),
    ],
)
def test_a_run_that_is_refused_writes_nothing(noted, tmp_path, opened, text):
    with pytest.raises(InputError, match=f"^{text}$"):
        noted(opened=opened, out=tmp_path / "run")
    assert [one[0] for one in noted.heard] == ["opened"]
    assert not (tmp_path / "run").exists()


def test_what_fails_once_the_run_is_stored_is_a_warning(noted, tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "desim"):
        noted(stored="1 / 0", out=tmp_path / "run")
    assert [one.getMessage() for one in caplog.records] == [
        "listeners: notes: stored: ZeroDivisionError: division by zero; the run is stored"
    ]
    assert desim.open(tmp_path / "run").status == "done"
