"""What whoever writes a method by the documentation does wrong first, and what desim says."""

from pathlib import Path

import pages
import pytest

import desim
from desim.contract import privacy_laws
from desim.contract.finding import BrokenError
from desim.contract.stage import Stage
from desim.errors import DesimError
from desim.scenario import registry

PAGE = Path(__file__).resolve().parents[1] / "analysis/docs/howto/algorithm.md"
FILES = {one.caption: one.text for one in pages.blocks(PAGE.read_text("utf-8")) if one.caption}
SCENARIOS = {"fedprox": "prox.yaml", "diging": "ring.yaml", "extra": "ring.yaml"}
ALGORITHMS = {
    "fedprox": {"mu": 0.1, "step": 0.05},
    "diging": {"alpha": 0.1},
    "extra": {"alpha": 0.1},
}
PRIVACY = {"noise": {"kind": "gaussian", "sigma": 0.5}}


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    """Plug-ins of one test are none of the next."""
    monkeypatch.setattr(registry, "_plugged", {})


def written(folder, name, *changes):
    """Put method `name` of the page with changes (right, wrong) beside its scenario."""
    text = FILES[f"{name}.py"]
    for right, wrong in changes:
        assert right in text
        text = text.replace(right, wrong)
    (folder / "mine.py").write_text(text)
    path = folder / "mine.yaml"
    path.write_text(FILES[SCENARIOS[name]])
    return path, {
        "plugins": ["mine.py"],
        "algorithm": {"name": name, **ALGORITHMS[name]},
        "problem.clip": 1,
        "privacy": PRIVACY,
        "stop.rounds": 3,
    }


@pytest.mark.parametrize("engine", ["cohort", "agents"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_page_has_no_mistake(name, engine, tmp_path):
    path, keys = written(tmp_path, name)
    done = desim.run(path, overrides={**keys, "engine": engine})
    assert (done.status, set(done.releases["mechanism"])) == ("done", {"gaussian"})


MISTAKES = {
    "noise is charged and not drawn": (
        "fedprox", ("us.noised(w)", "w"), "job does not draw; return us.noised"),
    "a verb of graphs in a job": (
        "fedprox", ("us.noised(w)", "us.release(w, None)"), "line .*returns us.noised"),
    "terms of the invited alone": (
        "fedprox", ("self.planned(hub.round)", "self.planned(1).of(hub.invite()[:2])"),
        "line .*found terms of 2 agents; allowed: those of all 6"),
    "rounds that never end": (
        "fedprox", ("            hub.publish(own.x) ", "            own.x "),
        "line .*1000 calls in round 1; publish ends it"),
    "a request that is not yielded": (
        "extra", ("yield us.gather()", "us.gather()"), "line .*write heard = yield us.gather"),
    "two vectors as two arguments": (
        "diging", ("us.send(np.hstack([us.x, us.y]))", "us.send(us.x, us.y)"),
        "line .*takes 2 positional arguments"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "change", "message"), MISTAKES.values(), ids=MISTAKES.keys())
@pytest.mark.parametrize("engine", ["cohort", "agents"])
def test_a_mistake_is_told_with_its_cure(name, change, message, engine, tmp_path):
    path, keys = written(tmp_path, name, change)
    with pytest.raises(DesimError, match=message):
        desim.run(path, overrides={**keys, "engine": engine})


def test_data_that_no_release_accounts_for_are_found(tmp_path):
    change = ("g = yield us.compute(self.gradient, us.x, work=self.problem.rows[us.who])",
              "g = self.gradient(us, us.x)")  # fmt: skip
    path, keys = written(tmp_path, "extra", change, ("us.release(g, self.terms(us.who, k))", "g"))
    scenario = desim.load(path, keys)
    with pytest.raises(BrokenError, match="but no release says so: was a job run without"):
        privacy_laws.sensitivity(Stage(registry.get("extra"), scenario))
