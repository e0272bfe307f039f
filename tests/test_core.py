"""The core: what a play needs, and nothing that reads scenarios, stores runs or asks questions.

Two methods of the papers, on a star and on a graph, with noise, ledger and log, on the engine of
single agents and on that of cohorts, in a process that cannot import the outer rooms.
"""

import operator
import os
import pickle
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from functools import partial
from importlib.util import find_spec

import pytest
from cases import NOISY, graph, star

import desim
from desim.scenario.build import build

OUTER = ("scenario", "runs", "deployments", "experiments", "interface")
# Of rooms that the core has part of, what only some methods, networks or data need.
BEYOND = """
    engine.agents.crossings engine.agents.ports engine.blind engine.budgets engine.coding
    engine.correlating engine.inviting engine.opening engine.presences engine.trusted log.parquet
    methods.shared.averages methods.shared.checked_kernels methods.shared.minimisation
    network.conditions.choosing network.conditions.links network.timeline.contention
    network.timeline.flow network.timeline.tcp numerics.discrete_gaussian numerics.skellam
    engine.secure_sum privacy.accounting.accountants privacy.accounting.gaussian privacy.correlated
    privacy.ledger.budget privacy.sums problem.data problem.kernels.argmin problem.kernels.codecs
    problem.kernels.layered problem.kernels.modelled problem.kernels.of_models
    problem.kernels.twofold problem.kernels.zeroth problem.losses.layers problem.losses.model_loss
    problem.models problem.optimum problem.own_tests
""".split()
MOST_LINES = 19_320  # two signals around a run; metrics of each client; what edges make of rounds
PLAYER = """
import pickle, sys
class Blocked:
    def find_spec(self, name, *_):
        if any(f"{name}.".startswith(f"desim.{one}.") for one in sys.argv[2:]):
            raise ImportError(f"{name} is not of the core")
sys.meta_path.insert(0, Blocked())
class Rows(list):
    def append(self, name, columns):
        super().append((name, {key: items(columns[key]) for key in columns}))
def items(column):
    return [column.words[k] for k in column.codes] if hasattr(column, "words") else list(column)
with open(sys.argv[1], "rb") as file:
    simulations = pickle.load(file)
played = []
for one in simulations:
    rows = Rows()
    outcome = one.play(rows)
    played.append((outcome.status, outcome.time, list(rows)))
modules = [one for one in sys.modules if one == "desim" or one.startswith("desim.")]
files = {sys.modules[one].__file__ for one in modules if sys.modules[one].__file__}
lines = sum(open(file, "rb").read().count(b"\\n") for file in files)
with open(sys.argv[1] + ".played", "wb") as file:
    pickle.dump((played, lines, len(files)), file)
"""


class Rows(list):
    """A sink of tables."""

    def append(self, name, columns):
        super().append((name, {key: items(columns[key]) for key in columns}))


def items(column):
    """Its values, of words the words."""
    return [column.words[k] for k in column.codes] if hasattr(column, "words") else list(column)


def whole(rows):
    """{(table, column): its values, as text that tells every bit}, however often it was flushed."""
    columns = defaultdict(list)
    for name, part in rows:
        for key, values in part.items():
            columns[name, key] += map(repr, values)
    return columns


def simulations():
    """Of both methods on both engines, without what would make them anew."""
    private = star(algorithm={"local": NOISY}, problem={"clip": 1.0})
    for scenario in (private, graph()):
        for engine in ("cohort", "agents"):
            made = build(desim.load({**scenario, "engine": engine}))
            start = partial(operator.getitem, {"x0": made.settings.initial("x0")})
            made = replace(made, origin=None, settings=replace(made.settings, initial=start))
            made.method.settings = made.settings
            yield made


def played(folder, blocked):
    """What a process that imports nothing of `blocked` plays: outcomes, lines, files."""
    file = folder / "simulations"
    file.write_bytes(pickle.dumps(list(simulations())))
    done = subprocess.run(
        [sys.executable, "-c", PLAYER, str(file), *blocked],
        capture_output=True, text=True,
        env={**os.environ, "DESIM_COMPILE": "never"},  # what compiles is loaded if it does
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return pickle.loads((folder / "simulations.played").read_bytes())


def test_the_core_plays_alone_and_stays_small(tmp_path):
    found, lines, files = played(tmp_path, (*OUTER, *BEYOND))
    assert [status for status, *_ in found] == 4 * ["done"]
    assert MOST_LINES - 500 <= lines <= MOST_LINES, (lines, files)
    for one, (_, time, rows) in zip(simulations(), found, strict=True):
        here = Rows()
        assert one.play(here).time == time
        assert whole(here) == whole(rows)
        assert {name for name, _ in rows} == {"events", "metrics", "releases"}


def test_what_the_core_has_to_do_without_is_there():
    assert all(find_spec(f"desim.{one}") for one in (*OUTER, *BEYOND))


def test_a_core_without_its_heart_is_noticed(tmp_path):
    with pytest.raises(AssertionError, match=r"desim\.engine\.hub is not of the core"):
        played(tmp_path, (*OUTER, "engine.hub"))
