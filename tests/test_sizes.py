"""How large a run gets is told before it begins."""

import numpy as np
import pytest
from cases import CASES, graph, star
from mutant import mutant

import desim
from desim.interface.cli import main
from desim.scenario import described
from desim.scenario.build import check

KEPT = ("plt-all", "plt-noisy", "nfl", "dp-nfl", "qsgd", "p-admm")


def estimates(module):
    for name in KEPT:
        for level in ("all", "messages", "rounds"):
            if name not in CASES:
                continue
            scenario = CASES[name] | {"log": level}
            run = desim.run(scenario)
            told = module.events(check(desim.load(scenario))) * run.manifest["rounds"]
            there = len(run.events)
            assert told / 2.0 - 8 <= there <= 2.0 * told + 8, (name, level, told, there)


def test_rows_are_estimated():
    assert sum(name in CASES for name in KEPT) > 3
    estimates(described)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("called * (6 + noise) + 1", "called"),
        ("2.0 * messages if", "0.0 * messages if"),
        ('"rounds": 1.0}', '"rounds": called}'),
    ],
)
def test_a_wrong_estimate_is_noticed(right, wrong):
    with pytest.raises(AssertionError, match=r"plt|fed|nfl|qsgd|gd"):
        estimates(mutant(described, right, wrong))


def lines(scenario):
    return list(described.sizes(check(desim.load(scenario))))


def test_small_runs_are_not_talked_of():
    assert lines(star()) == lines(graph()) == []


def test_large_files_are_told():
    many = star(stop={"rounds": 1_500_000}, log="all")
    told = lines(many)
    assert told[0].startswith("size: about ")
    assert told[0].endswith("MB of events at log: all; log: messages or log: rounds is smaller")
    one = lines(star(stop={"rounds": 100_000_000}, log="rounds"))
    dim = check(desim.load(star())).problem.dim
    assert one[0].startswith("warning: about 1.3 GB of events at log: rounds")
    assert one[1] == f"warning: {(100_000_001 * dim * 8) / 1e9:.4g} GB of model.npz, " + (
        "the model of every round"
    )
    kept = star(stop={"rounds": 1_500_000}, observe={"metrics": [], "iterates": True})
    assert any("iterates.npz, all models of every round" in line for line in lines(kept))
    assert lines(star(stop={"time": "1 s"})) == []


def test_a_model_of_every_round_is_what_is_stored(tmp_path):
    run = desim.run(star(stop={"rounds": 300}), out=tmp_path / "a")
    stored = (tmp_path / "a" / "model.npz").stat().st_size
    assert run.model.nbytes == 301 * run.model.shape[1] * described.NUMBER
    assert np.isclose(stored, run.model.nbytes, rtol=0.2)


def test_the_commands_tell(tmp_path, capsys):
    file = tmp_path / "long.yaml"
    file.write_text(
        "problem: {agents: 4, data: {source: synthetic, kind: regression, rows: 4, dim: 2},"
        " loss: squared}\nalgorithm: {name: fedavg, local: {epochs: 2}}\n"
        "stop: {rounds: 90000000}\n"
    )
    with pytest.raises(SystemExit, match="0"):
        main(["check", str(file)])
    told = capsys.readouterr().out
    assert "warning: about " in told
    assert "GB of model.npz" in told
