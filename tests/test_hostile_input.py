"""Input that must not hurt: odd names, plug-ins that raise, torn files, numbers that never fit."""

import json
import os
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from cases import graph, star
from mutant import mutant

import desim
from analysis import fuzz_scenarios
from desim.engine.agents import programs
from desim.errors import InputError, RunError
from desim.interface.cli import main as command_line
from desim.scenario import build, registry

PLUGIN = """
from desim.methods.shared.declarations import Method
from desim.fields import Strict

class Parameters(Strict):
    \"\"\"None.\"\"\"

class Own(Method):
    \"\"\"A method that raises.\"\"\"
    name, kind, summary, paper, Parameters = "own", "coordinator", "", "", Parameters

    def __init__(self, ingredients):
        super().__init__(ingredients)
        if {early}:
            raise KeyError("at the start")

    def coordinator(self, hub):
        raise ValueError("on the way")
        yield
"""


@pytest.mark.parametrize(
    "name",
    ["../a", "a/b", "..", "a\x1b[31m", "a\nb", "é" * 101, "[/red]", "a\\b", "", "\u202eabc"],
)
def test_a_name_is_that_of_a_directory(name):
    with pytest.raises(InputError, match="allowed: text that can name a directory"):
        desim.load(star(name=name))


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", ["[red]bold", "cost $x^$ each", "-o", "é" * 100])
def test_names_with_markup_are_shown_as_they_are(name, tmp_path, capsys):
    run = desim.run(star(name=name, stop={"rounds": 2}), out=tmp_path / "a")
    desim.plot([run], out=tmp_path / "a.svg")
    command_line_done(["show", str(tmp_path / "a")])
    assert capsys.readouterr().out.startswith(f"{name}: done")


def command_line_done(arguments):
    with pytest.raises(SystemExit) as left:
        command_line(arguments)
    assert left.value.code in (0, None)


def plugged(tmp_path, early):
    file = tmp_path / "own.py"
    file.write_text(PLUGIN.replace("{early}", str(early)))
    scenario = star(plugins=[str(file)])
    scenario["algorithm"] = {"name": "own"}
    scenario.pop("privacy", None)
    return scenario


def test_two_plugins_that_bring_one_name_are_refused(tmp_path):
    text = Path(__file__).with_name("plugins").joinpath("numpy_models.py").read_text()
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text(text)
    said = r"plugins\[1\]: found 'numpy-.*' in two\.py, and in .*one\.py, too; allowed: one file"
    with pytest.raises(InputError, match=said):
        desim.load(star(plugins=[str(tmp_path / one) for one in ("one.py", "two.py")]))


def test_a_plugin_that_raises_is_named(tmp_path):
    with pytest.raises(InputError, match=r"own\.py, line 15, raised KeyError: 'at the start'"):
        desim.run(plugged(tmp_path, True), out=tmp_path / "a")
    assert not (tmp_path / "a").exists()
    with pytest.raises(RunError, match=r"own\.py, line 18, raised ValueError: on the way"):
        desim.run(plugged(tmp_path, False), out=tmp_path / "a")
    assert desim.open(tmp_path / "a").status == "failed"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import sys; sys.exit(3)", "raised SystemExit: 3"),
        ("1 / 0", "raised ZeroDivisionError"),
        ("def (", "raised SyntaxError"),
        (
            "from desim.methods.shared.declarations import Method\nclass M(Method): name = 'm'",
            "M lacks kind",
        ),
        ("from desim.model import Model\nclass M(Model): summary = 's'", "M lacks name"),
    ],
)
def test_a_plugin_that_is_none_is_named(text, message, tmp_path):
    (tmp_path / "p.py").write_text(text)
    with pytest.raises(InputError, match=message):
        desim.load(star(plugins=[str(tmp_path / "p.py")]))


ODD = """
class Odd(BaseException):
    def __init__(self, one, two):
        super().__init__(one, two)

class Mute(Exception):
    def __str__(self):
        raise SystemExit(3)

class Numb(Exception):
    def __str__(self):
        return None
"""
RAISED = {
    "BaseException('x')": "BaseException: x",
    "GeneratorExit": "GeneratorExit",
    "SystemExit(5)": "SystemExit: 5",
    "Odd(1, 2)": r"Odd: \(1, 2\)",
    "Mute": "Mute: its own words cannot be had",
    "Numb": "Numb: its own words cannot be had",
    "StopIteration": "StopIteration|generator raised StopIteration",
    "ValueError('\\udc80')": r"ValueError: \\udc80",
}
WHERE = {
    'if {early}:\n            raise KeyError("at the start")': "raise {error}",
    'raise ValueError("on the way")': "raise {error}",
    "class Own(Method):": "raise {error}\nclass Own(Method):",
    '"""None."""': "@classmethod\n    def mapping(cls, data):\n        raise {error}",
}


@pytest.mark.thin(3)
@pytest.mark.parametrize("engine", ["cohort", "agents"])
@pytest.mark.parametrize("right", WHERE)
@pytest.mark.parametrize(("error", "told"), RAISED.items())
def test_whatever_a_plugin_raises_is_told_in_words(right, error, told, engine, tmp_path):
    text = PLUGIN.replace('\\"\\"\\"', '"""')
    assert right in text
    text = ODD + text.replace(right, WHERE[right].replace("{error}", error))
    (tmp_path / "own.py").write_text(text.replace("{early}", "False"), errors="surrogatepass")
    scenario = star(plugins=[str(tmp_path / "own.py")], engine=engine)
    scenario["algorithm"] = {"name": "own"}
    scenario.pop("privacy", None)
    began = "on the way" in right
    with pytest.raises(
        RunError if began else InputError, match=f"own.py.* raised.*({told})|surrogates"
    ):
        desim.run(scenario, out=tmp_path / "a")
    assert (tmp_path / "a").exists() == began


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        ("yield None", r"own\.py, line 19, yields None; allowed: yield hub\.collect\(\)"),
        ("yield 5", "line 19, yields 5"),
        ("yield hub.collect", "line 19, yields <bound method"),
        ("yield hub.collect()", "collects replies before any call; allowed: hub.call first"),
        ("return None", "its program never yields; allowed: yield hub"),
    ],
)
@pytest.mark.parametrize("engine", ["cohort", "agents"])
def test_a_program_that_asks_for_nothing_known_is_told_so(request_, told, engine, tmp_path):
    scenario = {**plugged(tmp_path, False), "engine": engine}
    text = (tmp_path / "own.py").read_text().replace("\n        yield", "")
    wrong = 'hub.start(x=self.settings.initial("x0"))\n        ' + request_
    (tmp_path / "own.py").write_text(text.replace('raise ValueError("on the way")', wrong))
    with pytest.raises(RunError, match=told):
        desim.run(scenario, out=tmp_path / "a")
    assert desim.open(tmp_path / "a").status == "failed"


def test_a_program_that_nobody_looks_at_is_noticed():
    def program(hub):
        yield None

    with pytest.raises(RunError, match=r"test_hostile_input\.py, line \d+, yields None"):
        next(programs.checked_requests(program, "coordinator", lambda: 0.0)(None))
    twin = mutant(programs, "if not isinstance(request, known)", "if False")
    anybody = SimpleNamespace(yielded=lambda request: True)
    assert next(twin.checked_requests(program, "coordinator", lambda: 0.0)(anybody)) is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('"own", "coordinator"', '"own", "planet"'), "kind: found 'planet'; allowed: coordinator"),
        (('"own", "coordinator"', '"own", ["graph"]'), "kind: found"),
        (('"own", "coordinator"', '"own", "graph"'), "lacks its program, agents"),
        (('"", "", Parameters', '"", "", dict'), "Parameters: found .*allowed: a class that"),
    ],
)
def test_a_method_of_another_shape_is_refused(change, told, tmp_path):
    scenario = plugged(tmp_path, False)
    text = (tmp_path / "own.py").read_text()
    assert change[0] in text
    (tmp_path / "own.py").write_text(text.replace(*change))
    with pytest.raises(InputError, match=told):
        desim.load(scenario)


def test_a_guard_that_lets_a_plugin_end_desim_is_noticed(tmp_path):
    twin = mutant(registry, "except BaseException as error", "except Exception as error")
    (tmp_path / "p.py").write_text("import sys; sys.exit(3)")
    with pytest.raises(SystemExit):
        twin.load_plugin(tmp_path / "p.py")


def pickled(file):
    np.savez(file, x0=np.array([{}], object))


def torn(file):
    np.savez(file, x0=np.zeros((6, 4)))
    file.write_bytes(file.read_bytes()[:-30])


def flipped(file):
    np.savez(file, x0=np.zeros((6, 4)))
    content = bytearray(file.read_bytes())
    content[100] ^= 255
    file.write_bytes(content)


def nothing(file):
    file.write_bytes(b"")


@pytest.mark.parametrize("spoil", [pickled, torn, flipped, nothing])
def test_arrays_that_cannot_be_read_are_refused(spoil, tmp_path):
    spoil(tmp_path / "x.npz")
    with pytest.raises(InputError, match=r"algorithm\.init\.npz: .* cannot be read as npz"):
        desim.run(star(algorithm={"init": {"npz": str(tmp_path / "x.npz")}}))
    data = {"source": "npz", "file": str(tmp_path / "x.npz")}
    scenario = star()
    scenario["problem"] = {"data": data, "loss": "logistic"}
    with pytest.raises(InputError, match=r"problem\.data\.file"):
        desim.run(scenario)
    run = desim.run(star(stop={"rounds": 1}), out=tmp_path / "a")
    spoil(tmp_path / "a" / "state.npz")
    with pytest.raises(InputError, match=r"state\.npz: is not the file that the run has left"):
        _ = desim.open(run.directory).state


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("problem.agents", 10**12),
        ("problem.data.rows", 10**13),
        ("problem.data.dim", 10**13),
        ("problem.agents", 10**30),
        ("stop.rounds", 10**30),
        ("seed", 10**40),
        ("algorithm.local.epochs", 10**30),
        ("algorithm.rho", "1e999"),
    ],
)
def test_numbers_that_never_fit_are_refused(key, value):
    with pytest.raises(InputError, match=key.split(".")[0]):
        build.check(desim.load(star(), {key: value}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"privacy.target.epsilon": 1e308}, "epsilon: found 1e.308; allowed: at most 1e.12"),
        ({"stop.rounds": 2 * 10**14}, "stop.rounds: .* at most 1000000 with privacy.target"),
        ({"algorithm.eta": {"initial": 0.1, "decay": {"power": 1e6}}}, "allowed: a number, 0 to 3"),
    ],
)
def test_numbers_that_overflow_on_the_way_are_refused(changes, message):
    scenario = graph(privacy={"target": {"epsilon": 5, "delta": 1e-6}})
    scenario["privacy"]["noise"] = {"kind": "gaussian"}
    build.check(desim.load(scenario))
    with pytest.raises(InputError, match=message):
        build.check(desim.load(scenario, changes))


@pytest.mark.parametrize(
    "manifest",
    [
        {"status": 3, "name": "a"}, {"status": "done"}, [1], "x", 0,
        *({"status": "done", "name": "a", key: value} for key, value in (
            ("time", "soon"), ("counts", [1]), ("rows", 3), ("rounds", {}), ("engine", None),
            ("rows", [float("nan")]), ("privacy", {"terms": 5}), ("privacy", {"terms": [1]}),
            ("privacy", {"terms": {"delta": "x"}}), ("privacy", {"terms": {"colour": "x"}}),
            ("privacy", {"tuned": 0}), ("privacy", {"tuned": [1]}),
        )),
    ],
)  # fmt: skip
def test_a_manifest_of_something_else_is_refused(manifest, tmp_path):
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="not a manifest of desim, or damaged"):
        desim.open(tmp_path)


@pytest.mark.parametrize("path", ["/dev/zero", ".", "~nobody-here/x", "a\0b"])
def test_what_is_no_file_is_not_read(path):
    data = {"source": "csv", "file": path, "label": "y"}
    scenario = star()
    scenario["problem"] = {"agents": 3, "data": data, "loss": "logistic"}
    with pytest.raises(InputError, match=r"problem\.data\.file: found"):
        desim.load(scenario)


def outcomes(count, play):
    """How many scenarios came to what, and what is wrong with those that should not have."""
    found = list(fuzz_scenarios.fuzz(count, play, seed=1))
    return Counter(one for one, _ in found), [fault for _, fault in found if fault]


@pytest.mark.slow
def test_mutated_scenarios_are_accepted_or_refused_in_words():
    told, faults = outcomes(150, 1)
    assert faults == []
    assert told["refused"] > 75
    assert told["accepted"] > 5


def test_a_fault_is_found(monkeypatch):
    monkeypatch.setattr(fuzz_scenarios.build, "check", lambda loaded: 1 // 0)
    told, faults = outcomes(20, 0)
    assert told["fault"] == len(faults) > 0
    assert "ZeroDivisionError" in faults[0]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("name", ["events.parquet", "state.npz", "scenario.yaml", "manifest.json"])
def test_a_pipe_or_a_device_in_a_run_directory_is_refused(name, tmp_path):
    desim.run(star(), out=tmp_path / "run")
    place = tmp_path / "run" / name
    kept = place.rename(tmp_path / name)
    place.symlink_to(kept)
    assert desim.open(tmp_path / "run").status == "done"  # a link to a file is a file
    (tmp_path / "pipe").unlink(missing_ok=True)
    os.mkfifo(tmp_path / "pipe")
    for other in (tmp_path / "pipe", Path("/dev/zero")):
        place.unlink()
        place.symlink_to(other)
        for ask in (desim.open, desim.resume, desim.plot, desim.compare, desim.replay):
            with pytest.raises(InputError, match=rf"{name}: is no regular file; allowed: files"):
                ask(tmp_path / "run")


def test_a_run_that_ends_before_its_first_instant_has_time_0(monkeypatch):
    def stop(now):
        raise KeyboardInterrupt

    monkeypatch.setattr("desim.engine.world.World.interrupted", lambda self: -5e-324)
    assert desim.run(graph(), progress=stop).manifest["time"] == 0.0
