"""The page of study files: its example and those of the keys are studies that can be planned."""

from pathlib import Path

import pages
import pytest

from analysis.docs.generate import completed
from analysis.docs.generate.examples import example
from analysis.docs.generate.scenario import study
from desim.errors import InputError
from desim.experiments.studies.study import plan
from desim.experiments.tuning import candidates as tuning
from desim.scenario.study_file import Charge, Compare, Profile, Search, StudyFile, Terms, Tune

PAGE = Path(__file__).resolve().parents[1] / "analysis/docs/reference/study.md"
KEYS = [(StudyFile, ()), (Search, ("random",)), (Compare, ("compare",))]
KEYS += [(Terms, ("compare", "epsilon")), (Profile, ("compare", "profile"))]
TUNER = [(Tune, ("tune",)), (Charge, ("tune", "charge"))]


def written(place, key, value):
    """The least study that has the key."""
    tree = {"random": {"trials": 2, "draw": {"seed": {"integer": [0, 9]}}}} if place else {}
    section = tree
    for name in place:
        section = section.setdefault(name, {})
    section[key] = value
    if key != "list":
        tree.setdefault("list", [{"policy": "all"}, {"policy": {"quorum": 8}}])
    return {"base": "quickstart", **({"grid": {"seed": "0..1"}} if not place else {}), **tree}


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("section", "place", "key"),
    [(one, place, key) for one, place in KEYS for key in one.keys() if key != "tune"],
)
def test_the_example_of_a_key_is_one(section, place, key):
    tree = written(place, key, example(section, key))
    if place == ("random",) or key in ("random", "grid"):  # a key varies in one of them
        tree.pop("list")
    assert len(plan(tree).jobs) >= 1
    assert f"**`{key}`**" in study()


@pytest.mark.parametrize(
    ("section", "place", "key"), [(one, place, key) for one, place in TUNER for key in one.keys()]
)
def test_the_example_of_a_tuner_s_key_is_one(section, place, key):
    tune = {"vary": {"algorithm.rho": [0.5, 1]}, "until": {"accuracy": 0.9}}
    if place == ("tune",):
        tune[key] = example(section, key)
    else:
        tune["charge"] = {"law": "poisson", "mean": 3, key: example(section, key)}
    if "charge" in tune:
        tune |= {"seeds": 1}
        with pytest.raises(InputError, match="one run tests what another one trains on"):
            tuning.planned({"base": "quickstart", "tune": tune})
    else:
        assert tuning.planned({"base": "quickstart", "tune": tune}).tune.budget >= 10
    assert f"**`{key}`**" in study()


def test_a_key_that_is_none_is_noticed():
    with pytest.raises(InputError, match="unknown key"):
        plan(written(("compare",), "stay", True))


def test_the_page_plans_a_study(tmp_path):
    text = PAGE.read_text("utf-8")
    (block,) = [one.text for one in pages.blocks(text) if "base:" in one.text]
    (tmp_path / "s.yaml").write_text(block)
    planned = plan(tmp_path / "s.yaml")
    assert len(planned.jobs) == 40
    assert completed("reference/study", text) == text
