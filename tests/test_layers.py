"""Imports point downwards, libraries stay behind their fences, files stay small and say why."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "desim"
ROOMS = {  # from the ground up; lines of code that each may have: a change that grows one says why
    "words": 3190,  # how far a run is; loggers; units of power, energy, joules a byte
    "numerics": 2810,  # Skellam noise, exactly; filters, imported late; draws of attackers
    "problem": 9020,  # test rows by workers; partitioners of flwr-datasets; calls of models as
    "network": 7120,  # trees, whose edges leave; files of FedScale, Mahimahi, NDT, read as data
    "log": 1480,  # columns of charges and of clients; when something was learnt
    "privacy": 6430,  # noise that remembers, whose rows add up; what sums and their parts tell
    "engine": 13840,  # two signals around a run; sizes of messages by agent; stars of stars
    "methods": 6920,  # robust rules, attacks; what rounds of an edge come to; noise of links
    "flower": 2340,  # Flower apps by their Grid, without models, too; what of them is refused
    "scenario": 12000,  # partitioners; trees, their churn and rules, attackers, batteries; traces
    "runs": 10170,  # trackers of studies, and what is spent meanwhile; who hears of a run; which
    "deployments": 10600,  # edges of a tree as processes; who is blamed, whichever word came first
    "experiments": 11190,  # laws of what a class says of sums; joules beside seconds and bytes
    "interface": 8895,  # a player that knows rounds of graphs; a page that watches runs and studies
}
OUTER = ("runs", "deployments", "experiments", "interface")
DOORS_OF = {  # modules of a room that the outer ones may use; all else in it is its inside
    "numerics": "keys later plain cores environment",
    "problem": "problem targets fairness own_tests models.user_model",
    "network": "timeline.messages timeline.record",
    "log": "column_meanings event_log parquet",
    "privacy": "ledger.ledger accounting.accountants accounting.views",
    "engine": "play signals world",
    "methods": "shared.declarations",
    "flower": "asked",
    "scenario": "load schema build registry described",
    "runs": "run recording store privacy",
    "deployments": "deployed join measuring.calibration fidelity.clock_errors",
    "experiments": "studies.study reported tuning.tune ranking.robust "
    "audit.of_method audit.of_one_run contract",
}
OFFERED = {  # names that outer rooms take through these doors: only down, to 15
    "numerics": 14, "problem": 12, "network": 12, "log": 14, "privacy": 20, "engine": 15,
    "methods": 2, "flower": 4, "scenario": 13, "runs": 15, "deployments": 10, "experiments": 16,
}  # fmt: skip
INSIDE = {  # names that a room takes from inside others: only down, of outer rooms to 15
    # scenario: attacks and robust sums, two modules that it builds; deployments: nine of engine's
    # tree, whose edges they play by processes; what follows runs, whose group a study has
    "problem": 29, "network": 19, "log": 1, "privacy": 8, "engine": 158, "methods": 66,
    "scenario": 144, "runs": 73, "deployments": 53, "experiments": 88, "interface": 58,
}  # fmt: skip
SPARE = 3  # names that such a number may have left
WORDS = (  # of the first floor, and the doors, which stand where their room does
    "errors units amounts agent_names arrays loggers masks npz pace shapes tabulated unplayed "
    "readers columns memory fields method model signals torch jax losses __init__ __main__"
).split()
LAYERS = [  # one floor a line: parts of it do not need each other, or are one room
    "errors units amounts agent_names arrays loggers masks npz pace shapes tabulated unplayed",
    "numerics readers columns memory",
    "problem.models",
    "problem.losses losses",
    "problem.kernels",
    "problem",
    "network.timeline",
    "network",
    "log",
    "privacy",
    "fields",
    "engine methods.shared method",
    "model signals torch jax",
    "methods",
    "flower",
    "scenario",
    "runs",
    "deployments",
    "experiments",
    "interface __main__",
]
PLOTTED = {  # methods `plot` of what a user holds draw it, and so import upwards, late
    "desim.runs.run": "desim.interface.plots.of_run",
    "desim.deployments.fidelity.clock_errors": "desim.interface.plots.activity",
    "desim.experiments.audit.stored": "desim.interface.plots.trade_off",
}
LEVEL = {name: depth for depth, names in enumerate(LAYERS) for name in names.split()}
FENCES = {
    "simpy": "desim.engine",
    "networkx": "desim.network.conditions.topology",
    "ruamel": "desim.scenario.load desim.scenario.tree",
    "matplotlib": "desim.interface.plots desim.report",
    "PIL": "desim.problem.data.images",
    "pyarrow": "desim.log",
    "perfetto": "desim.runs.exports.perfetto",
    "dp_accounting": "desim.privacy",
    "distributed": "desim.experiments.pool desim.runs.processes desim.runs.batches",
    "psutil": "desim.experiments.pool desim.runs.processes",
    "optuna": "desim.experiments.tuning.sampling",
    "tensorboard": "desim.runs.trackers.event_files",
    "mlflow": "desim.runs.trackers.experiment_runs",
    "torch": "desim.torch "
    + " ".join(f"desim.problem.models.torch_{part}" for part in ("module", "parts", "look")),
    "jax": "desim.problem.models.jax_function desim.jax",
    "flwr": "desim.flower",
    "flwr_datasets": "desim.problem.data.flower_partitioners",
    "cryptography": "desim.deployments.doors desim.deployments.masking",
    "yaml": "nowhere",
}
ALIKE = (  # files of these are called like the thing: its keys, its command, its paper, its engine
    "desim.scenario.sections.",
    "desim.interface.cli.commands.",
    "desim.privacy.papers.",
    "desim.engine.cohort.",
    "desim.engine.compiled.",
)
DOORS = ("desim.model", "desim.method", "desim.signals", "desim.torch", "desim.jax",
         "desim.losses.plugged")  # fmt: skip
SLACK = 200  # lines that a budget may have left: one that is too wide holds nothing
LONGEST = 60  # lines of a function
MAP = PACKAGE.with_name("CONTRIBUTING.md")
EMPTY_NAMES = re.compile(r"^(utils?|helpers?|managers?|base|misc|common)(_|$)")


def level(name):
    """Layer of a dotted module name by its longest prefix in the table; None where it has none."""
    parts = name.split(".")[1:]
    known = [LEVEL.get(".".join(parts[:n])) for n in range(len(parts), 0, -1)]
    return next((one for one in known if one is not None), None)


def sources():
    """{dotted module name: text} of every module of desim; packages by their own name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text("utf-8")
    return found


@cache
def parsed(text):
    """The tree of a module's text."""
    return ast.parse(text)


@cache
def landmarks(text):
    """Imports, functions and conditions of a module's text: to walk takes as long as to parse."""
    kinds = ast.ImportFrom | ast.Import | ast.FunctionDef | ast.If
    return [node for node in ast.walk(parsed(text)) if isinstance(node, kinds)]


def unplayed(text):
    """Imports of a module that stand under `if TYPE_CHECKING:`, and so are never played."""
    for node in landmarks(text):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for one in node.body:
                yield from ast.walk(one)


def imports(name, text, modules, typed=True):
    """Dotted names of the modules that the module imports, wherever in it: the most exact ones.

    typed: also those that only checkers of types see.
    """
    unseen = set() if typed else {*unplayed(text)}
    for node in landmarks(text):
        if node in unseen:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield f"a relative import on line {node.lineno}"
        elif isinstance(node, ast.ImportFrom):
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (one if one in modules else node.module for one in inner)


def layering(modules):
    """One line for every import that points upwards or sideways out of order, or jumps a fence."""
    for name, text in modules.items():
        own = level(name)
        if own is None and name != "desim":
            yield f"{name} is in no layer"
            continue
        for target in imports(name, text, modules):
            top = target.split(".")[0]
            fence = FENCES.get(top)
            if fence and not any(f"{name}.".startswith(f"{one}.") for one in fence.split()):
                yield f"{name} imports {top}, which only {fence} may"
            if " " in target:
                yield f"{name} has {target}"
            if target == PLOTTED.get(name):
                continue
            if top == "desim" and own is not None and (level(target) or 0) > own:
                yield f"{name} imports {target}, which is above it"


def cycles(modules):
    """Modules that import themselves over others (imports inside functions count too).

    Those for types alone do not: a function may name the class whose methods call it.
    """
    graph = {
        name: {t for t in imports(name, text, modules, False) if t in modules and t != "desim"}
        for name, text in modules.items()
        if name != "desim"
    }
    while leaves := [name for name, targets in graph.items() if not targets & graph.keys()]:
        for name in leaves:
            del graph[name]
    return sorted(graph)


def room(name):
    """Which room a dotted module name belongs to."""
    first = [*name.split("."), "__init__"][1]
    return "words" if first in WORDS else first


def budgets(modules, most):
    """One line for every room that exceeds its budget, or whose budget is too wide to say much."""
    lines = dict.fromkeys(most, 0)
    for name, text in modules.items():
        if room(name) not in lines:
            yield f"{name} is in no room"
            continue
        lines[room(name)] += text.count("\n")
    for one, number in lines.items():
        if not most[one] - SLACK <= number <= most[one]:
            yield f"{one} has {number} lines, its budget is {most[one]}"


def taken(modules):
    """(room, giver, module, name) of whatever a module imports from another room but the words."""
    for name, text in modules.items():
        for node in landmarks(text):
            if not isinstance(node, ast.ImportFrom | ast.Import):
                continue
            for alias in node.names:
                whole = alias.name
                if isinstance(node, ast.ImportFrom):
                    inner = f"{node.module}.{alias.name}"
                    whole = inner if inner in modules else node.module
                giver = room(whole) if whole.startswith("desim.") else "words"
                if giver not in ("words", room(name)):
                    yield room(name), giver, whole, alias.name


def reaching(modules, doors, inside, offered):
    """One line for every room that takes more from inside others, or offers more, than it may."""
    open_ = {f"desim.{giver}.{one}" for giver, names in doors.items() for one in names.split()}
    found = [*taken(modules)]
    past = {one: set() for one in inside}
    through = {one: set() for one in offered}
    for taker, giver, module, name in found:
        if module not in open_:
            past.get(taker, set()).add((module, name))  # words hold what users' doors offer
        elif taker in OUTER:
            through[giver].add((module, name))
    for what, names, most in (("takes", past, inside), ("offers", through, offered)):
        for one, number in most.items():
            if not number - SPARE <= len(names[one]) <= number:
                yield f"{one} {what} {len(names[one])} names, and may {number}"


def house(modules):
    """One line for every file that is too long, silent, or named after nothing."""
    for name, text in modules.items():
        lines = text.count("\n")
        if lines > 600:
            yield f"{name} has {lines} lines"
        if not ast.get_docstring(parsed(text)):
            yield f"{name} has no docstring"
        for node in landmarks(text):
            if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= LONGEST:
                yield f"{name}.{node.name} has {node.end_lineno - node.lineno + 1} lines"
        if any(EMPTY_NAMES.match(part) for part in name.split(".")):
            yield f"{name} is a name that says nothing"


def doubles(modules):
    """File names that two modules have, but for those that say by their folder what they are."""
    seen = {}
    folders = {name.rsplit(".", 1)[0] for name in modules}
    for name in modules - folders:
        if not name.startswith(ALIKE) and name not in DOORS:
            seen.setdefault(name.rsplit(".", 1)[-1], []).append(name)
    return [names for names in seen.values() if len(names) > 1]


def test_every_file_has_a_name_of_its_own():
    modules = set(sources())
    assert doubles(modules) == []
    assert doubles({*modules, "desim.runs.links"}) != []


def test_imports_point_downwards():
    assert list(layering(sources())) == []


def test_no_import_goes_round():
    assert cycles(sources()) == []


def test_every_room_stays_within_its_budget():
    assert list(budgets(sources(), ROOMS)) == []


def test_rooms_use_each_others_doors():
    modules = sources()
    doors = [f"desim.{room}.{one}" for room, names in DOORS_OF.items() for one in names.split()]
    assert [one for one in doors if one not in modules] == []
    assert list(reaching(modules, DOORS_OF, INSIDE, OFFERED)) == []
    for names in ("desim.log.parquet", "desim.log.rows"):  # more than a door may offer, or inside
        wrong = {"desim.runs.other": "\n".join(f"from {names} import f{k}" for k in range(9))}
        assert len([*reaching(modules | wrong, DOORS_OF, INSIDE, OFFERED)]) == 1


def test_files_are_short_and_say_why():
    assert list(house(sources())) == []


TYPED = "if TYPE_CHECKING:\n    from desim.runs import run\n"
WRONG = [
    ({"desim.problem.losses.scalar": "import desim.runs"}, layering),
    ({"desim.problem.losses.scalar": "from desim import run", "desim.run": ""}, layering),
    (
        {"desim.problem.kernels.local": "def f():\n    from desim.engine.agents.graph import run"},
        layering,
    ),
    ({"desim.interface.cli": "from .run import run"}, layering),
    ({"desim.methods.fed_plt": "import simpy"}, layering),
    ({"desim.enginework": "import math"}, layering),
    ({"desim.network.conditions.links": "from networkx import Graph"}, layering),
    ({"desim.scenario.schema": "from ruamel.yaml import YAML"}, layering),
    ({"desim.run": "import matplotlib.pyplot as plt"}, layering),
    ({"desim.run": "from pyarrow import parquet"}, layering),
    ({"desim.scenario.load": "import yaml"}, layering),
    ({"desim.runs.run": "import dp_accounting"}, layering),
    ({"desim": "import simpy"}, layering),
    ({"desim.experiments.tuning.search": "import optuna"}, layering),
    ({"desim.problem.models.user_model": "import jax.numpy as jnp"}, layering),
    (
        {
            "desim.problem.data": "import desim.problem.problem",
            "desim.problem.problem": "from desim.problem import data",
        },
        cycles,
    ),
    ({"desim.runs.run": TYPED.replace("if TYPE", "if not TYPE")}, cycles),
    ({"desim.runs.run": TYPED + "else:\n    from desim.runs import run\n"}, cycles),
    ({"desim.numerics.keys": '"""Why."""\n' + "x = 1\n" * 600}, house),
    ({"desim.numerics.keys": "x = 1"}, house),
    ({"desim.numerics.keys": '"""Why."""\ndef f():\n' + "    x = 1\n" * 60}, house),
    ({"desim.network.conditions.utils": '"""Why."""'}, house),
    ({"desim.base_method": '"""Why."""'}, house),
]


@pytest.mark.parametrize(("modules", "rule"), WRONG)
def test_a_wrong_house_is_noticed(modules, rule):
    assert len(list(rule(modules))) >= 1


@pytest.mark.parametrize(
    ("name", "lines"),
    [("desim.log.event_log", 301), ("desim.log.event_log", 99), ("desim.attic", 300)],
)
def test_a_room_that_grows_or_shrinks_past_its_budget_is_noticed(name, lines):
    modules = {"desim.log.event_log": "", name: "x = 1\n" * lines}
    assert len(list(budgets(modules, {"log": 300}))) >= 1
    assert list(budgets({"desim.log.event_log": "x = 1\n" * 299}, {"log": 300})) == []


def test_a_right_house_passes():
    modules = {
        "desim": '"""Why."""',
        "desim.problem.losses.scalar": '"""Why."""\nimport numpy\nfrom desim.numerics import keys',
        "desim.engine.agents": '"""Why."""\nimport simpy\nfrom desim.problem import losses',
        "desim.runs.run": f'"""Why."""\n{TYPED}',
    }
    assert [*layering(modules), *cycles(modules), *house(modules)] == []


def test_import_desim_is_light():
    heavy = "{'numba', 'matplotlib', 'pandas', 'simpy', 'sklearn', 'scipy', 'pyarrow'}"
    code = f"import desim, sys; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    wrong = code.replace("import desim", "import desim, pyarrow")
    done = subprocess.run([sys.executable, "-c", wrong], capture_output=True, text=True, check=True)
    assert "pyarrow" in done.stdout


def test_figures_and_reports_import_nothing_that_plays():
    """What draws a run that is stored needs no compiler, and no law, solver or process either."""
    heavy = "numba scipy pandas simpy networkx sklearn ruamel psutil dp_accounting clarabel"
    rooms = "engine.world scenario.load scenario.build numerics.jit experiments.pool"
    names = {*heavy.split(), *(f"desim.{one}" for one in rooms.split())}
    code = f"""import desim, sys
desim.plot, desim.report
print(sorted({names} & set(sys.modules)))
import psutil
print(sorted({names} & set(sys.modules)))"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "['psutil']"]


def test_the_map_names_every_room_above_those_that_import_it():
    """From the ground up, as the budgets do."""
    rows = re.findall(r"^\| ((?:`\w+` ?)+)\|", MAP.read_text("utf-8"), re.M)
    rooms = [name for row in rows for name in re.findall(r"\w+", row)]
    assert rooms == list(ROOMS)


def missized(text):
    """Rooms whose budget is not about what the map says, in thousands of lines."""
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \|", text, re.M)
    said = {name: 1000 * int(thousands) for name, thousands in rows}
    return [name for name, lines in ROOMS.items() if abs(said.get(name, 0) - lines) > 750]


def test_the_map_says_about_how_large_each_room_is():
    text = MAP.read_text("utf-8")
    assert missized(text) == []
    assert missized(re.sub(r"`engine` \| \d+", "`engine` | 6", text)) == ["engine"]


def absent(text):
    """Files that the map names and that are not there; bare names are beside the latest one."""
    beside = PACKAGE
    for name in re.findall(r"(?<!\*)`((?:\w+/)*\w+\.py)`", text):  # **`name`** is an example
        places = [beside / name, PACKAGE / name, PACKAGE.parent / name]
        if found := [one for one in places if one.exists()]:
            beside = found[0].parent
        else:
            yield name


def test_the_files_that_the_map_names_are_there():
    text = MAP.read_text("utf-8")
    assert list(absent(text)) == []
    assert list(absent(text.replace("timeline/waiting_rule.py", "timeline/rule.py"))) != []
