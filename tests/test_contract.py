"""The contract: the example keeps every law, and each law finds the plug-in that breaks it."""

from copy import deepcopy
from pathlib import Path

import pytest
from cases import CASES
from mutant import mutant

from desim.errors import InputError
from desim.experiments import contract
from desim.experiments.contract import algorithm_laws, loss_laws
from desim.experiments.contract import algorithm_laws as laws
from desim.experiments.contract.algorithm_laws import reads
from desim.experiments.contract.stage import BrokenError, SkippedError, Stage
from desim.interface.cli import main
from desim.scenario import registry
from desim.scenario.build import build
from desim.scenario.load import load

EXAMPLE = Path(__file__).resolve().parents[1] / "analysis" / "plugin_example"
METHOD, LOSS = (EXAMPLE / "src" / "desim_example" / f"{name}.py" for name in
                ("noisy_gossip", "log_cosh"))  # fmt: skip


@pytest.mark.slow
def test_the_example_keeps_the_contract(capsys):
    with pytest.raises(SystemExit) as left:
        main(["check", "--contract", str(METHOD)])
    said = capsys.readouterr().out.splitlines()
    assert left.value.code == 0
    assert [line.split()[:2] for line in said[1:-1]] == [["kept", law] for law, _ in laws.LAWS]
    assert said[-1] == f"  {len(laws.LAWS)} kept"


def test_the_loss_of_the_example_keeps_the_contract():
    registry.load_plugin(LOSS)
    found = list(contract.loss("log-cosh"))
    assert [(one.law, one.outcome) for one in found] == [(law, "kept") for law, _ in loss_laws.LAWS]


def test_a_loss_with_a_kink_keeps_it_and_has_no_optimum():
    registry.load_plugin(Path(__file__).parent / "plugins" / "losses.py")
    outcomes = {one.law: one.outcome for one in contract.loss("pinball")}
    assert outcomes.pop("optimum") == "skipped"
    assert set(outcomes.values()) == {"kept"}


ONE_ROUND = {
    "seed": 1, "problem": {
        "agents": 2, "loss": "squared",
        "data": {"source": "synthetic", "kind": "regression", "rows": 4, "dim": 2},
    },
    "algorithm": {"name": "fedavg"}, "stop": {"rounds": 1},
}  # fmt: skip


def test_an_honest_method_of_one_round_is_not_said_to_report_nothing():
    """After one round agents have what they were first sent; of two rounds the law is kept."""
    stage = Stage(registry.get("fedavg"), load(ONE_ROUND), {})
    with pytest.raises(SkippedError, match="it has one round"):
        laws.plays(stage)
    two = {**ONE_ROUND, "stop": {"rounds": 2}}
    assert laws.plays(Stage(registry.get("fedavg"), load(two), {})) == "2 rounds"
    wrong = mutant(laws, "(stage.scenario.stop.rounds or 0) == 1", "False")
    with pytest.raises(BrokenError, match="no model ever changes"):
        wrong.plays(stage)


COUNT = ("class NoisyGossip", "import itertools\nCOUNT = itertools.count()\n\n\nclass NoisyGossip")
BREAKS = [
    (laws.declares, [('    """weight of the neighbours\' mean against the own model"""\n', "")]),
    (laws.plays, [("            us.report(us.x)\n", "")]),
    (laws.engines, [("us.sum(heard) / degree", "us.sum(heard) / len(us.who)")]),
    (laws.threads, [("self.problem.data))", "self.problem.data)) + 1e-9 * threads()"),
                    (
                        "import numpy as np",
                        "import numpy as np\nfrom desim.numerics.jit import threads",
                    )]),
    *[(law, [COUNT, ("self.problem.data))", "self.problem.data)) + 1e-9 * next(COUNT)")])
      for law in (laws.batches, laws.observers, laws.repeats, laws.resumes, laws.retimes,
                  algorithm_laws.silence)],
    (algorithm_laws.charges, [("terms(self.noise,", "terms(None,")]),
    (algorithm_laws.sensitivity, [("reach = 2.0", "reach = 1.0")]),
]  # fmt: skip


@pytest.mark.thin(3)
@pytest.mark.parametrize(("law", "changes"), BREAKS, ids=lambda one: getattr(one, "__name__", ""))
def test_each_law_finds_an_algorithm_that_breaks_it(law, changes, tmp_path):
    text = METHOD.read_text()
    for right, wrong in changes:
        assert text.count(right) == 1, right
        text = text.replace(right, wrong)
    (tmp_path / "broken.py").write_text(text)
    registry.load_plugin(tmp_path / "broken.py")
    with pytest.raises(BrokenError):
        law(Stage(registry.get("noisy-gossip")))


PAIRS = METHOD.with_name("pairwise_gossip.py")


@pytest.mark.parametrize("wrong", [")", ", step=h // 2)"])
def test_a_batch_that_is_drawn_twice_is_noticed(wrong, tmp_path):
    text = PAIRS.read_text()
    assert text.count(", step=h)") == 1
    registry.load_plugin(PAIRS)
    assert laws.draws(Stage(registry.get("pairwise-gossip"))) == "288 batches, each drawn once"
    (tmp_path / "broken.py").write_text(text.replace(", step=h)", wrong))
    registry.load_plugin(tmp_path / "broken.py")
    with pytest.raises(BrokenError, match=r"agent 0 draws the same batch twice in round 1: give"):
        laws.draws(Stage(registry.get("pairwise-gossip")))


READ = "np.asarray(gradient(us.who, z, self.problem.data))"
BATCH = "batch_gradient(us.who, z, {}, us.round, self.settings.seed, self.problem.data, step={})"
TWO = BATCH.format(2, 0)
POINTS = BATCH.format(2, 0).replace("us.who, z", "np.tile(us.who, 2), np.tile(z, (2, 1))")


def sampled(read, share, tmp_path):
    """Noisy gossip that reads so, and declares that share of 8 rows."""
    text = METHOD.read_text()
    for right, wrong in [(READ, read), ("    gradient,", "    batch_gradient,\n    gradient,"),
                         ("reach, self.problem.dim)",
                          f"reach, self.problem.dim, np.full(len(who), {share}))")]:  # fmt: skip
        assert text.count(right) == 1, right
        text = text.replace(right, wrong)
    (tmp_path / "sampled.py").write_text(text)
    registry.load_plugin(tmp_path / "sampled.py")
    return Stage(registry.get("noisy-gossip"))


@pytest.mark.parametrize(("read", "share"), [
    (TWO, 0.25), (f"{TWO} + {BATCH.format(2, 1)}", 0.4375),
    (POINTS.replace("us.round", "np.tile(us.round, 2)") + "[:len(z)]", 0.25), (READ, "np.nan"),
])  # fmt: skip
def test_a_batch_that_is_declared_is_the_one_that_is_read(read, share, tmp_path):
    assert laws.draws(sampled(read, share, tmp_path)).endswith(("drawn once", "no batch is drawn"))


@pytest.mark.parametrize(("read", "found"), [
    (READ, "all its rows are"), (BATCH.format(3, 0), "0.375 of its rows are"),
    (f"{TWO} + {BATCH.format(2, 1)}", "0.438 of its rows are"),
])  # fmt: skip
def test_more_rows_than_the_terms_declare_are_noticed(read, found, tmp_path):
    said = f"agent 0 releases in round 1 with sampling 0.25, but {found} read since its last"
    with pytest.raises(BrokenError, match=said):
        laws.draws(sampled(read, 0.25, tmp_path))


@pytest.mark.parametrize("name", ["dsgd", "sdm-dsgd", "qsgd", "q2sgd", "gd"])
def test_desims_own_batches_are_those_that_are_declared(name):
    """Also where the message of a round tells of the batch of the round before, as in q2sgd."""
    found = reads(build(load(deepcopy(CASES[name]))))
    found.demand()
    assert (len(found.read) > 0, found.unread) == (True, 0)


def test_rows_that_are_read_unseen_are_told_of(tmp_path):
    assert "96 releases declare a batch that was not seen" in laws.draws(
        sampled("z", 0.25, tmp_path)
    )


def test_a_coordinators_agents_are_held_to_their_batches(tmp_path):
    text = METHOD.with_name("reptile.py").read_text().replace(", ()", ", ('gaussian',)")
    charged = (
        "work=work, charge=terms(self.noise, View.COORDINATOR, 1, work, self.problem.dim, {}))"
    )
    text = text.replace("Hub,", "Hub, View, terms,").replace("return w", "return us.noised(w)")
    for share in ("work / work", "0.3 * work / work"):
        (tmp_path / "one.py").write_text(text.replace("work=work)", charged.format(share)))
        registry.load_plugin(tmp_path / "one.py")
        stage = Stage(registry.get("reptile"))
        if share == "work / work":
            assert laws.draws(stage) == "no batch is drawn"
    with pytest.raises(BrokenError, match=r"in round 1 with sampling 0.3, but all its rows"):
        laws.draws(stage)


def test_noise_without_a_clip_is_tried_as_far_as_it_goes():
    """There is nothing that an override could leave out, and no sensitivity is bounded."""
    noise = {"privacy": {"noise": {"sigma": 0.1}}}
    registry.load_plugin(METHOD)
    stage = Stage(registry.get("noisy-gossip"), overrides=noise)
    assert stage.noisy.problem.clip is None
    assert algorithm_laws.charges(stage).endswith("; no problem.clip, so that sensitivities may be "
                                                "infinite")  # fmt: skip
    assert algorithm_laws.silence(stage) == "sigma = 0 gives the models without privacy"


def test_one_error_of_all_laws_is_told_once(tmp_path, capsys):
    text = METHOD.read_text().replace("problem.data", "problem.daata")
    (tmp_path / "failing.py").write_text(text)
    with pytest.raises(SystemExit) as left:
        main(["check", "--contract", str(tmp_path / "failing.py")])
    said = capsys.readouterr()
    assert left.value.code == 1
    assert said.out.count("no attribute 'daata'") == 1
    assert "skipped  others       not tried for that error: engines, batches, thr" in said.out
    assert "1 law is broken" in said.err


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", ["pairwise_gossip", "reptile"])
def test_a_newcomers_methods_are_short_and_keep_the_contract(name, capsys):
    path = METHOD.with_name(f"{name}.py")
    assert len([line for line in path.read_text().splitlines() if line.strip()]) < 40
    with pytest.raises(SystemExit) as left:
        main(["check", "--contract", str(path)])
    said = capsys.readouterr().out
    assert left.value.code == 0
    assert "policy each" in said


LOSS_BREAKS = [
    (loss_laws.finite, "math.log1p(math.exp(-2.0 * r))", "math.log(math.cosh(r))"),
    (loss_laws.derivatives, "return math.tanh(u - b)", "return 1.001 * math.tanh(u - b)"),
    (loss_laws.derivatives, "return 1.0 - t * t", "return 1.0 - t"),
    (loss_laws.convex, "return math.tanh(u - b)", "return math.sin(u - b)"),
    (loss_laws.curvature, "curvature = 1.0", "curvature = 0.9"),
    (loss_laws.gradients, "return math.tanh(u - b)", "return math.tanh(u)"),
    (loss_laws.clips, "- math.log(2.0)", "+ 0.1 * u"),
    (loss_laws.learns, "return math.tanh(u - b)", "return -0.01 * math.tanh(u - b)"),
]


@pytest.mark.parametrize(("law", "right", "wrong"), LOSS_BREAKS)
def test_each_law_finds_a_loss_that_breaks_it(law, right, wrong, tmp_path):
    text = LOSS.read_text()
    assert text.count(right) == 1
    (tmp_path / "broken.py").write_text(text.replace(right, wrong))
    registry.load_plugin(tmp_path / "broken.py")
    with pytest.raises(BrokenError):
        law(loss_laws.LossStage(registry.plugged().losses["log-cosh"]))


def test_a_method_of_desim_keeps_the_contract_where_it_is_used():
    stage = Stage(registry.get("fed-plt"), load("quickstart"))
    assert "policy each" in laws.engines(stage)
    with pytest.raises(SkippedError, match="not given by"):
        algorithm_laws.silence(stage)


def test_what_cannot_be_tried_is_bad_input(tmp_path, capsys):
    (tmp_path / "empty.py").touch()
    (tmp_path / "folder.py").mkdir()
    for target, message in [
        ("zcdp-nfl", "algorithm.rho: missing"),
        (str(tmp_path / "empty.py"), "defines no algorithm, no loss and no model"),
        (str(tmp_path / "none.py"), "does not exist"),
        (str(tmp_path / "folder.py"), "is no regular file"),
        ("zcdp-nlf", "did you mean 'zcdp-nfl'?"),
        (
            str(tmp_path / "empty"),
            "empty: no such file, scenario, algorithm, loss or model; did you mean",
        ),
        ("nothing", "allowed: a plug-in's file, a scenario, or a name of desim list"),
    ]:
        with pytest.raises(SystemExit) as left:
            main(["check", "--contract", target])
        assert left.value.code == 2
        assert message in " ".join(capsys.readouterr().err.split())
    with pytest.raises(InputError, match="none is plugged in"):
        contract.loss("nothing")
    with pytest.raises(SkippedError, match="solver: noisy"):
        _ = Stage(registry.get("fed-plt"), load("papers/fed-plt")).noisy


def test_a_broken_law_ends_with_1(tmp_path, capsys):
    text = LOSS.read_text().replace("curvature = 1.0", "curvature = 0.9")
    (tmp_path / "low.py").write_text(text)
    with pytest.raises(SystemExit) as left:
        main(["check", "--contract", str(tmp_path / "low.py")])
    said = capsys.readouterr()
    assert left.value.code == 1
    assert "broken   curvature    curvature is 0.9, but the slope rises by 1" in said.out
    assert "1 law is broken" in said.err
