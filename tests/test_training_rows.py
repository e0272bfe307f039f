"""Training features come from training rows: whatever test rows hold, they stay the same."""

import numpy as np
import pytest
from mutant import mutant
from pydantic import ValidationError
from sections import made, written

from desim.data import frames, tables
from desim.errors import InputError

TRAIN = """age,city,pulse,part,sick
30,Bern,60,a,no
40,Thun,?,a,yes
?,Bern,90,a,yes
50,Chur,66,a,no
"""
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
    monkeypatch.setattr(tables, "framed", mutant(frames, right, wrong).framed)
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
