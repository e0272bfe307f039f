"""Training features come from training rows: whatever test rows hold, they stay the same."""

import numpy as np
import pytest
from mutant import mutant
from pydantic import ValidationError
from sections import made, written

import desim
from desim.errors import InputError
from desim.problem.data import frames, sources
from desim.runs.premises import tuned

TRAIN = """age,city,pulse,part,sick
30,Bern,60,a,no
40,Thun,?,a,yes
?,Bern,90,a,yes
50,Chur,66,a,no
"""
FLAGS = """flag,gap,site,pulse,part,sick
True,true,9,60,a,no
False,?,10,70,a,yes
False,false,9,90,a,yes
True,true,10,66,a,no
"""
FLAG_TESTS = (  # what pandas makes of a column is of all rows: true and false, numbers, words
    "True,false,9,80,b,no\n",
    "?,?,9,80,b,no\n",
    "unknown,unknown,9,80,b,no\n",
    "True,false,north,80,b,no\n",
    "True,false,9,unknown,b,no\n",
)
TESTS = ("60,Bern,70,b,no\n", "99,Basel,200,b,no\n-5,Aarau,1,b,yes\n70,?,80,b,yes\n")
WAYS = [
    {"encode": encode, "missing": missing, "scale": scale}
    for encode in ("one-hot", "ordinal")
    for missing in ("most-frequent", "mean", "median")
    for scale in ("none", "standard")
]


def read(folder, text, **keys):
    marked = {"test": {"column": "part", "value": "b"}, "partition": "contiguous"}
    return made(**{**written(folder, text), **marked, **keys})


def check(folder):
    for way in WAYS:
        one, two = (read(folder, TRAIN + test, **way) for test in TESTS)
        assert one.names == two.names
        assert np.array_equal(one.A, two.A)
    assert one.A.shape == (4, 3)
    found = read(folder, TRAIN + TESTS[1], encode="ordinal", missing="median")
    assert found.test_A[:2, 1].tolist() == [-1.0, -1.0]


def check_flags(folder):
    """Three numbers whatever the test row holds, and site 9 before site 10."""
    for encode in ("none", "one-hot", "ordinal"):
        for missing in ("most-frequent", "mean", "median", "drop"):
            keys = {"encode": encode, "missing": missing, "marks": "unknown", "agents": 2}
            keys |= {"test": {"column": "part", "value": "b"}, "partition": {"by": "site"}}
            texts = [FLAGS + FLAG_TESTS[0] + row for row in FLAG_TESTS]
            found = [made(**{**written(folder, text), **keys}) for text in texts]
            for one in found:
                assert one.names == ("flag", "gap", "pulse"), (encode, missing)
                assert one.sites == ("9", "10")
                assert np.array_equal(one.A, found[0].A)
            fill = {"mean": 2 / 3}.get(missing, 1.0)
            kept = [[0, fill, 70]] if missing != "drop" else []
            rows = [[1, 1, 60], [0, 0, 90], *kept, [1, 1, 66]]
            assert found[0].A == pytest.approx(np.array(rows, float))


@pytest.mark.slow
def test_a_column_of_true_and_false_is_one_by_its_training_rows(tmp_path):
    check_flags(tmp_path)
    for encode in ("none", "one-hot"):
        with pytest.raises(InputError, match="row 5, column 'flag': found 'unknown', where train"):
            read(tmp_path, FLAGS + FLAG_TESTS[2], exclude=["gap"], encode=encode, missing="mean")


def test_a_type_of_all_rows_is_noticed(tmp_path, monkeypatch):
    for right, wrong in (
        ("present = column[train].dropna()", "present = column.fillna('gap')"),
        ("_counts(column[train])]", "_counts(frame[n])]"),
    ):
        monkeypatch.setattr(sources, "framed", mutant(frames, right, wrong).framed)
        with pytest.raises(AssertionError):
            check_flags(tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr("desim.problem.data._typed", lambda groups, _: groups)
    with pytest.raises(AssertionError):
        check_flags(tmp_path)


def test_test_rows_change_no_training_feature(tmp_path):
    check(tmp_path)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("words = np.unique(texts[train])", "words = np.unique(texts)"),
        ("known = frame[name][train].dropna()", "known = frame[name].dropna()"),
        ("np.where(known, code, -1.0)", "np.where(known, code, len(words))"),
    ],
)
def test_a_look_at_test_rows_is_noticed(tmp_path, monkeypatch, right, wrong):
    monkeypatch.setattr(sources, "framed", mutant(frames, right, wrong).framed)
    with pytest.raises(AssertionError):
        check(tmp_path)


def test_a_word_of_test_rows_alone_is_none(tmp_path):
    found = read(tmp_path, TRAIN + TESTS[1], encode="one-hot", missing="median")
    assert found.names == ("age", "city=Bern", "city=Chur", "city=Thun", "pulse")
    assert found.test_A.tolist() == [[99, 0, 0, 0, 200], [-5, 0, 0, 0, 1], [70, 1, 0, 0, 80]]
    with pytest.raises(InputError, match="row 6, column 'city': found 'Aarau', which no training"):
        read(
            tmp_path,
            TRAIN + TESTS[1].replace("Basel", "Bern"),
            encode="ordinal",
            missing="mean",
            unseen="error",
        )


def test_gaps_are_filled_with_the_mean_or_median(tmp_path):
    text = TRAIN + TESTS[0]
    for how, age, pulse in (("mean", 40.0, 72.0), ("median", 40.0, 66.0)):
        found = read(tmp_path, text, features=["age", "pulse"], missing=how)
        assert found.A[2, 0] == pytest.approx(age)
        assert found.A[1, 1] == pytest.approx(pulse)
    words = TRAIN.replace("40,Thun", "40,?") + TESTS[0]
    found = read(tmp_path, words, features=["city"], encode="one-hot", missing="median")
    assert found.names == ("city=Bern", "city=Chur")
    assert found.A[1].tolist() == [1.0, 0.0]


@pytest.mark.parametrize("marks", [-999, "-999", [-999, "unknown"], [-999.0, "unknown"]])
def test_own_marks_stand_for_missing_values(tmp_path, marks):
    text = TRAIN.replace("?,Bern", "-999,Bern").replace("40,Thun,?", "40,Thun,-999")
    found = read(tmp_path, text + TESTS[0], features=["age", "pulse"], missing="mean", marks=marks)
    assert found.A[2, 0] == pytest.approx(40.0)
    assert found.A[1, 1] == pytest.approx(72.0)
    with pytest.raises(InputError, match="the value is missing"):
        read(tmp_path, text + TESTS[0], features=["age"], marks=marks)


def test_a_mark_may_be_a_word(tmp_path):
    text = TRAIN.replace("40,Thun", "unknown,unknown") + TESTS[0]
    keys = {"missing": "median", "marks": "unknown", "encode": "one-hot"}
    found = read(tmp_path, text, **keys)
    assert found.names == ("age", "city=Bern", "city=Chur", "pulse")
    assert found.A[1].tolist() == [40.0, 1.0, 0.0, 66.0]
    with pytest.raises(ValidationError, match="a number or text, or a list of them"):
        read(tmp_path, text, marks=[[1]])


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (
            {"features": ["age"], "partition": {"by": "city"}},
            "problem.partition.by: .*, data row 3,",
        ),
        (
            {"features": ["age", "city"], "partition": {"by": "city"}},
            "problem.partition.by: 'city'",
        ),
        (
            {"features": ["pulse"], "test": {"column": "city", "value": "Bern"}},
            "data.test.column: ",
        ),
    ],
)
def test_a_gap_in_a_column_that_is_needed_says_which_and_what_helps(tmp_path, keys, told):
    text = "age,city,pulse,sick\n30,Bern,60,no\n40,Thun,60,yes\n50,,60,yes\n"
    section = {**written(tmp_path, text), "encode": "one-hot", **keys}
    if "partition" in keys:
        del section["agents"]
    if "city" in keys["features"]:
        section["missing"] = "most-frequent"
    with pytest.raises(InputError, match=told + ".*allowed: a value in every row.*missing: drop"):
        made(**section)
    assert "city" not in made(**{**section, "missing": "drop"}).names


def test_what_all_agents_rows_decide_together_is_charged_to_nobody(tmp_path):
    path = written(tmp_path, TRAIN)["file"]
    data = {"source": "csv", "file": path, "label": "sick", "marks": -999}
    said = {}
    for name, keys in {
        "none": {"missing": "drop"},
        "one": {"missing": "median"},
        "all": {"encode": "ordinal", "missing": "most-frequent", "scale": "minmax"},
    }.items():
        problem = {"agents": 2, "data": {**data, **keys}, "loss": "logistic"}
        method = {"name": "fedavg", "local": {"epochs": 1, "step": 0.1}}
        said[name] = list(
            tuned(desim.load({"problem": problem, "algorithm": method, "stop": {"rounds": 1}}))
        )
    both = "problem.data.encode: ordinal, problem.data.missing: most-frequent, "
    assert said == {
        "none": ["problem.data.missing: drop: how many rows there are depends on what they hold"],
        "one": ["problem.data.missing: median is computed from all agents' data"],
        "all": [f"{both}problem.data.scale: minmax are computed from all agents' data"],
    }
