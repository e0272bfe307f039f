"""Rows dealt by flwr-datasets under a scenario are those that its partitioners deal by hand."""

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip(
    "flwr_datasets", reason="flwr-datasets is not installed: pip install 'desim[partitioners]'"
)

from mutant import mutant

from desim.errors import InputError
from desim.problem.data import flower_partitioners
from desim.scenario.load import loaded
from desim.scenario.problem_read import read_problem

pytestmark = [  # the library's own, when it is called by hand
    pytest.mark.filterwarnings("ignore:Specifying null_placement:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The sum of partition sizes:UserWarning"),
]
AGENTS, SEED = 5, 7
DIGITS = np.random.default_rng(3).integers(0, 4, 120)
SITES = np.array([f"s{i % AGENTS}" for i in range(120)])
HEIGHTS = np.random.default_rng(4).normal(size=120)
CASES = {
    "IidPartitioner": {},
    "DirichletPartitioner": {"alpha": 0.5, "min_partition_size": 1},
    "PathologicalPartitioner": {"num_classes_per_partition": 2},
    "ShardPartitioner": {"num_shards_per_partition": 2},
    "LinearPartitioner": {},
    "SquarePartitioner": {},
    "SizePartitioner": {"partition_sizes": [10, 20, 30, 15, 25]},  # leaves out twenty rows
    "InnerDirichletPartitioner": {"partition_sizes": [24] * AGENTS, "alpha": 0.5},
    "DistributionPartitioner": {
        "distribution_array": [[0.25] * 4] * 4,
        "num_unique_labels_per_partition": 2,
        "preassigned_num_samples_per_label": 1,
        "num_partitions": 8,
    },
    "NaturalIdPartitioner": {"partition_by": "site"},
    "GroupedNaturalIdPartitioner": {"partition_by": "site", "group_size": 2},
    "ContinuousPartitioner": {"partition_by": "height", "strictness": 0.5},
}
LABELLED = {"Dirichlet", "Pathological", "Shard", "InnerDirichlet", "Distribution"}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    file = tmp_path_factory.mktemp("data") / "rows.csv"
    rows = zip(range(120), SITES, HEIGHTS, DIGITS, strict=True)
    text = "".join(f"{n},{site},{height!r},{digit}\n" for n, site, height, digit in rows)
    file.write_text("number,site,height,digit\n" + text.replace("np.float64(", "").replace(")", ""))
    return file


def written(table, name, arguments, agents):
    data = {"source": "csv", "file": str(table), "label": "digit", "features": ["number"],
            "test": 0}  # fmt: skip
    partition = {"flwr": {name: arguments} if arguments else name}
    problem = {"data": data, "loss": "softmax", "partition": partition}
    if agents:
        problem["agents"] = agents
    return {
        "seed": SEED, "problem": problem, "algorithm": {"name": "fedavg"}, "stop": {"rounds": 1},
        "network": "lan", "compute": {"speed": "100 /s"},
    }  # fmt: skip


def dealt(table, name, arguments, agents=AGENTS):
    """Numbers of the rows of each agent of the scenario."""
    problem = read_problem(loaded(written(table, name, arguments, agents)), None)[0]
    numbers = np.asarray(problem.A)[:, 0].round().astype(int)
    return [numbers[a:b].tolist() for a, b in zip(problem.start, problem.start[1:], strict=False)]


def by_hand(name, arguments, agents):
    """The same, by the library alone."""
    from datasets import Dataset
    from flwr_datasets import partitioner as library

    own = dict(arguments)
    if name.removesuffix("Partitioner") in LABELLED:
        own["partition_by"] = "label"
    if name.removesuffix("Partitioner") in LABELLED | {"Continuous"}:
        own["seed"] = SEED
    if not {"partition_sizes", "num_partitions"} & {*own} and "NaturalId" not in name:
        own["num_partitions"] = agents
    if "distribution_array" in own:
        own["distribution_array"] = np.array(own["distribution_array"])
    one = getattr(library, name)(**own)
    rows = {"label": DIGITS, "site": SITES, "height": HEIGHTS, "n": np.arange(120)}
    one.dataset = Dataset.from_dict(rows)
    return [sorted(one.load_partition(i)["n"]) for i in range(one.num_partitions)]


@pytest.mark.parametrize("name", CASES)
def test_agents_hold_what_the_partitioner_deals(table, name):
    decides = "NaturalId" in name or name.startswith("Distribution")
    agents = {"NaturalIdPartitioner": 5, "GroupedNaturalIdPartitioner": 3}.get(name, AGENTS)
    own = dealt(table, name, CASES[name], None if decides else agents)
    assert own == by_hand(name, CASES[name], agents)
    assert own == dealt(table, name, CASES[name], None if decides else agents)


def test_a_seed_that_is_the_librarys_own_is_noticed(table, monkeypatch):
    twin = mutant(flower_partitioners, '"seed": seed', '"seed": 42')
    monkeypatch.setattr(flower_partitioners, "_completed", twin._completed)
    for name in ("DirichletPartitioner", "PathologicalPartitioner", "ContinuousPartitioner"):
        assert dealt(table, name, CASES[name]) != by_hand(name, CASES[name], AGENTS)


@pytest.mark.parametrize(
    ("name", "arguments", "agents", "words"),
    [
        ("ShardsPartitioner", {}, 5, "ShardPartitioner"),
        ("VerticalEvenPartitioner", {}, 5, "deals columns"),
        ("IdToSizeFncPartitioner", {}, 5, "takes a function"),
        ("DirichletPartitioner", {"alfa": 1}, 5, "alpha"),
        ("DirichletPartitioner", {"alpha": -1.0}, 5, "flwr-datasets raised"),
        ("ShardPartitioner", {}, 5, "flwr-datasets raised"),
        ("NaturalIdPartitioner", {"partition_by": "town"}, None, "town"),
        ("NaturalIdPartitioner", {"partition_by": "site"}, 4, "allowed: 5"),
        ("IidPartitioner", {}, None, "say how many agents"),
        ("SizePartitioner", {"partition_sizes": [100, 100]}, 2, "flwr-datasets raised"),
    ],
)
def test_what_it_cannot_deal_is_refused_in_words(table, name, arguments, agents, words):
    with pytest.raises(InputError, match=r"problem\.(partition\.flwr|agents)") as refused:
        dealt(table, name, arguments, agents)
    assert words in str(refused.value)


def test_labels_that_deal_rows_are_said_of_an_epsilon(table):
    from desim.runs.premises import decided_by_rows

    named = written(table, "ShardPartitioner", {"shard_size": 9, "partition_by": "digit"}, AGENTS)
    assert any("deals rows by all agents' labels" in one for one in decided_by_rows(loaded(named)))
    cases = {"IidPartitioner": False, "SizePartitioner": False, "ShardPartitioner": True}
    for name, by_label in {**cases, "NaturalIdPartitioner": False}.items():
        scenario = loaded(written(table, name, CASES[name], AGENTS))
        assert scenario.problem.partition.by_label == by_label


def test_nobody_imports_the_library_who_does_not_use_it():
    code = "import desim.problem.data, sys; print('flwr_datasets' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
