"""Listeners that do what they must not: the run ends in words, and what had happened is stored."""

import cases
import numpy as np
import pytest

import desim
from desim.errors import InputError, RunError
from desim.runs.reading.facts import facts
from desim.scenario.load import load

HEAD = "import numpy as np\nfrom desim.signals import *\nclass A(Listener):\n    name = 'a'\n"
SAID = "    summary = 's'\n"
NAMELESS = HEAD.replace("name = 'a'", "pass") + SAID
CASE = cases.star(algorithm={"name": "fedavg", "local": {"epochs": 3}})


def scenario(tmp_path, *lines, head=HEAD + SAID, **changes):
    """The case with a listener of these lines."""
    file = tmp_path / "plug.py"
    file.write_text(head + "".join(f"    {line}\n" for line in lines))
    return {**CASE, "plugins": [str(file)], "listeners": ["a"]} | changes


def failed(tmp_path, *lines, **changes):
    """How a run with that listener failed, and what is stored of it."""
    with pytest.raises(RunError) as caught:
        desim.run(scenario(tmp_path, *lines, **changes), out=tmp_path / "run")
    stored = desim.open(tmp_path / "run")
    assert (stored.status, stored.manifest["reason"]) == ("failed", str(caught.value))
    return str(caught.value), stored


def whole(run):
    """Whether a run has all that the case has without listeners."""
    alone = desim.run(CASE)
    tables = all(
        getattr(run, t).equals(getattr(alone, t)) for t in ("events", "metrics", "releases")
    )
    rounds = run.manifest["rounds"] == alone.manifest["rounds"]
    return tables and rounds and np.array_equal(run.iterates, alone.iterates)


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("pass", "listeners: a: ended returns: found null; allowed: numbers"),
        ("return [1]", "listeners: a: ended returns: found [1]"),
        ("return {'x': {1}}", "found {'x': {1}}"),
        ("return {'x': [1, {'y': 1j}]}", "found {'x': [1, {'y': 1j}]}"),
        ("return {(1, 2): 3}", "found {(1, 2): 3}"),
        ("yield 1", "found <generator"),
        ("raise ValueError('boo')", "plug.py, line 6, raised ValueError: boo"),
        ("x = []; x.append(x); return {'x': x}", "found {'x': [[...]]}"),
    ],
)
def test_what_ended_may_not_say_fails_a_run_that_has_all_else(tmp_path, said, text):
    found, run = failed(tmp_path, f"def ended(self, time): {said}")
    assert text in found
    assert whole(run)


def test_numbers_of_numpy_are_said_as_json_has_them(tmp_path):
    said = "{'x': np.ones(2), 'y': np.float32(2), 'n': np.int64(3), 'z': [np.nan, -np.inf]}"
    run = desim.run(
        scenario(tmp_path, f"def ended(self, time): return {said}"), out=tmp_path / "run"
    )
    expected = {"x": [1.0, 1.0], "y": 2.0, "n": 3, "z": ["NaN", "-Infinity"]}
    assert run.listeners == desim.open(tmp_path / "run").listeners == {"a": expected}
    assert " NaN," not in (tmp_path / "run" / "manifest.json").read_text()
    assert dict(facts(run))["a"] == "x of 2, y 2, n 3, z of 2"


def test_the_others_say_what_they_have_to_say(tmp_path):
    other = HEAD.replace("class A", "class B").replace("'a'", "'b'") + SAID
    file = tmp_path / "other.py"
    file.write_text(other + "    def ended(self, time): return {'x': 1}\n")
    made = scenario(tmp_path, "def ended(self, time): 1 / 0", listeners=["a", "b"])
    made["plugins"] += [str(file)]
    with pytest.raises(RunError, match="ZeroDivisionError"):
        desim.run(made, out=tmp_path / "run")
    assert desim.open(tmp_path / "run").listeners == {"b": {"x": 1}}


def test_who_has_nothing_to_say_has_no_line(tmp_path):
    run = desim.run(scenario(tmp_path, "def rows(self, table, columns): pass"))
    assert run.listeners == {"a": {}}
    assert "a" not in dict(facts(run))


@pytest.mark.parametrize(
    ("listeners", "text"),
    [
        (["a", 3], r"listeners\[1\]: found 3"),
        ([{"name": "a", "x": 1}], r"listeners\[0\].x: unknown key"),
        ([{"x": 1}], r"listeners\[0\]: found no name in {'x': 1}"),
    ],
)
def test_a_mistake_says_in_which_listener_it_is(tmp_path, listeners, text):
    with pytest.raises(InputError, match=text):
        load(scenario(tmp_path, "def ended(self, time): return {}", listeners=listeners))


def test_another_network_fails_in_words_too(tmp_path):
    own = desim.run(CASE).manifest["time"]
    line = f"def ended(self, time): return {{'x': 1 / (time == {own!r})}}"
    run = desim.run(scenario(tmp_path, line))
    with pytest.raises(RunError, match="ZeroDivisionError"):
        desim.retime(run, network={"link": {"latency": "0 s"}}, out=tmp_path / "other")
    stored = desim.open(tmp_path / "other")
    assert (stored.status, stored.manifest["rounds"]) == ("failed", run.manifest["rounds"])
    assert np.array_equal(stored.iterates, run.iterates)


@pytest.mark.parametrize("engine", ["cohort", "agents"])
@pytest.mark.parametrize("seconds", [0.0, 1e9])
def test_rows_that_a_listener_refuses_are_stored(tmp_path, engine, seconds, monkeypatch):
    monkeypatch.setattr("desim.engine.world.FLUSH_SECONDS", seconds)
    lines = ["def begun(self, settings): self.n = 0"]
    lines += ["def rows(self, table, columns): self.n += len(columns['time']); 1 / (self.n < 9)"]
    found, run = failed(tmp_path, *lines, engine=engine)
    assert "raised ZeroDivisionError" in found
    assert len(run.events) >= 9
    if seconds:  # all came at once, when the run was over
        assert whole(run)


@pytest.mark.parametrize(
    ("head", "line", "text"),
    [
        (HEAD, "def ended(self, time): return {}", "A lacks summary"),
        (NAMELESS, "def ended(self, time): return {}", "A lacks name"),
        (HEAD + SAID, "def send(self, m): pass", "A.signals: found none .* did you mean 'sending'"),
        (HEAD + SAID, "def __init__(self, x): pass", "A.__init__: found a function of"),
        (HEAD + SAID, "class Parameters(Strict): name: Text = 'x'", "A.Parameters: found name"),
        (HEAD + SAID, "Parameters = {}", "A.Parameters: found {}"),
    ],
)  # fmt: skip
def test_a_class_that_is_no_listener_is_refused(tmp_path, head, line, text):
    with pytest.raises(InputError, match=text):
        load(scenario(tmp_path, line, head=head))
