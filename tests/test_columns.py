"""Columns of a table: missing values, words as numbers, rows for testing; Adult by hand."""

import csv
import gzip

import numpy as np
import pandas as pd
import pytest
from mutant import mutant
from sections import made, written

from desim.errors import InputError
from desim.problem.data import frames
from desim.problem.data import table as table_module

CITIES = """age,city,car,fold,sick
30,Bern,yes,0,no
40,?,no,0,yes
,Thun,yes,0,yes
60,Bern, ?,0,no
70,Chur,yes,0,no
80,Basel,no,1,yes
"""


def cities(folder, **keys):
    keys = {"encode": "one-hot", "partition": "contiguous", "agents": 1, **keys}
    return made(**{**written(folder, CITIES), **keys})


def test_words_become_columns(tmp_path):
    found = cities(tmp_path, missing="drop", exclude=["fold"])
    assert found.names == ("age", "city=Basel", "city=Bern", "city=Chur", "car=no", "car=yes")
    assert found.A.tolist() == [[30, 0, 1, 0, 0, 1], [70, 0, 0, 1, 0, 1], [80, 1, 0, 0, 1, 0]]
    assert found.b.tolist() == [-1.0, -1.0, 1.0]
    ordinal = cities(tmp_path, missing="drop", encode="ordinal")
    assert ordinal.names == ("age", "city", "car", "fold")
    assert ordinal.A.tolist() == [[30, 1, 1, 0], [70, 2, 1, 0], [80, 0, 0, 1]]
    named = cities(tmp_path, missing="drop", features=["car"])
    assert named.names == ("car=no", "car=yes")
    assert len(named.A) == 5  # a missing age is no reason to drop a row that does not use it


def test_missing_values_are_filled_from_training_rows(tmp_path):
    found = cities(tmp_path, missing="most-frequent", encode="ordinal", test={"rows": 1})
    assert found.A.shape == (5, 4)
    marked = {"test": {"column": "fold", "value": 1}, "missing": "most-frequent"}
    found = cities(tmp_path, **marked, encode="ordinal")
    assert found.names == ("age", "city", "car")
    # ages 30, 40, 60, 70 are equally frequent, the smallest is taken; cities 0 Bern, 1 Chur, 2 Thun
    assert found.A[:, 0].tolist() == [30, 40, 30, 60, 70]
    assert found.A[:, 1].tolist() == [0, 0, 2, 0, 1]
    assert found.A[:, 2].tolist() == [1, 0, 1, 1, 1]
    assert found.test_A.tolist() == [[80, -1, 0]]  # nobody who trains has heard of Basel


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "row 3, column 'age': the value is missing.*missing: drop"),
        ({"exclude": ["age"]}, "row 2, column 'city': the value is missing"),
        ({"exclude": ["town"]}, "exclude: found no column 'town'"),
        ({"missing": "drop", "features": ["fold"], "exclude": ["age"]}, "only one of them"),
        ({"encode": "none", "features": ["city"]}, "found 'Bern'; allowed: .*problem.data.encode"),
        ({"encode": "binary"}, "encode.*one-hot"),
        ({"missing": "drop", "test": {"column": "part", "value": 1}}, "no column 'part'"),
        ({"missing": "drop", "test": {"column": "fold", "value": 2}}, "no row has 2.*found 0, 1"),
        ({"missing": "drop", "test": {"column": "fold"}}, "value.*missing"),
        ({"missing": "drop", "test": {"value": 1}}, "column.*missing"),
        ({"missing": "drop", "test": {"rows": 3}}, "all 3 rows are for testing"),
        ({"missing": "drop", "test": {"rows": 4}}, "found 4; allowed: at most 3 rows"),
        ({"missing": "drop", "test": {"rows": 0}}, "whole number >= 1"),
        (
            {"missing": "drop", "test": {"row": 1}},
            "found {'row': 1}; allowed: {rows: n}.*did you mean 'rows'",
        ),
        ({"missing": "drop", "test": "some"}, "a fraction from 0 to 1"),
        ({"missing": "drop", "train": 4}, "train: found 4; allowed: at most 3 rows"),
        ({"missing": "drop", "partition": {"by": "town"}}, "found no column 'town'"),
    ],
)
def test_wrong_keys_are_explained(tmp_path, keys, message):
    with pytest.raises((InputError, ValueError), match=f"(?s){message}"):
        cities(tmp_path, **keys)


def test_a_number_mistyped_is_no_category(tmp_path):
    text = "age,sick\n30,no\n40,yes\nforty,yes\n"
    with pytest.raises(InputError, match="row 3, column 'age': found 'forty'"):
        made(**written(tmp_path, text), encode="one-hot")
    names = "".join(f"n{k},{k % 2}\n" for k in range(1001))
    with pytest.raises(InputError, match=r"'name' of .* has 1001 different words"):
        made(**written(tmp_path, "name,sick\n" + names), encode="one-hot")


def test_nothing_left_is_said(tmp_path):
    text = "age,city,sick\n30,?,no\n,Bern,yes\n"
    with pytest.raises(InputError, match="no rows, all of whose rows have a missing value"):
        made(**written(tmp_path, text), encode="one-hot", missing="drop")
    with pytest.raises(InputError, match="row 2, column 'sick'"):
        made(**written(tmp_path, "age,sick\n1,no\n2,?\n"), missing="most-frequent")
    with pytest.raises(InputError, match="row 1, column 'age': the value is missing"):
        made(**written(tmp_path, "age,sick\n?,no\n?,yes\n"), missing="most-frequent")


def test_rows_for_testing_and_training_are_drawn_apart(tmp_path):
    rows = "".join(f"{k},{k % 2}\n" for k in range(40))
    keys = {**written(tmp_path, "x,sick\n" + rows), "partition": "contiguous", "seed": 4}
    found = made(**keys, test={"rows": 10}, train=20)
    assert (len(found.b), len(found.test_b)) == (20, 10)
    assert not set(found.A[:, 0]) & set(found.test_A[:, 0])
    assert np.all(np.diff(found.A[:, 0]) > 0)  # contiguous means in the order of the table
    fewer = made(**keys, test=0.25, train=20)
    assert np.array_equal(fewer.test_A, found.test_A)  # 10 of 40 rows, however it is said
    assert np.array_equal(fewer.A, found.A)
    assert len(made(**keys, test={"rows": 10}).b) == 30


def test_a_frame_of_openml_is_read_with_its_categories(monkeypatch):
    from sklearn import datasets

    kind = pd.Categorical(["x", "y", None, "x"], categories=["z", "y", "x"])
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "kind": kind, "y": ["p", "n", "n", "p"]})
    bunch = type("Bunch", (), {"frame": frame, "target_names": ["y"]})()
    monkeypatch.setattr(datasets, "fetch_openml", lambda **settings: bunch)
    keys = {"source": "openml", "name": "toy", "agents": 1, "partition": "contiguous"}
    found = made(**keys, encode="one-hot", missing="drop")
    assert found.names == ("a", "kind=x", "kind=y")
    assert found.A.tolist() == [[1, 1, 0], [2, 0, 1], [4, 1, 0]]


NUMERIC = {"age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"}


def adult_by_hand(file, how):
    """Complete rows of Adult by a loop: one-hot or ordinal, columns over their largest, norms."""
    with gzip.open(file, "rt") as text:
        rows = [row for row in csv.DictReader(text) if "?" not in row.values()]
    columns = []
    for name in rows[0]:
        values = np.array([row[name] for row in rows])
        if name in NUMERIC:
            columns.append(values.astype(float))
        elif name not in ("income", "split"):
            words = sorted(set(values.tolist()))
            marks = [(values == word).astype(float) for word in words]
            columns += marks if how == "one-hot" else [sum(c * m for c, m in enumerate(marks))]
    A = np.array(columns).T
    test = np.array([row["split"] == "test" for row in rows])
    A = A / np.abs(A[~test]).max(axis=0)
    A = A / np.maximum(1.0, np.linalg.norm(A, axis=1))[:, None]
    return A, np.array([1.0 if row["income"] == ">50K" else -1.0 for row in rows]), test


@pytest.mark.slow
@pytest.mark.parametrize("how", ["one-hot", "ordinal"])
def test_adult(shared, how):
    file = shared / "data" / "adult.csv.gz"
    found = made(
        source="csv", file=str(file), label="income", positive=">50K", encode=how, missing="drop",
        scale="max", normalize="clip", test={"column": "split", "value": "test"}, agents=1,
        partition="contiguous",
    )  # fmt: skip
    A, b, test = adult_by_hand(file, how)
    assert A.shape == (45222, {"one-hot": 104, "ordinal": 14}[how])  # as adult.names counts rows
    np.testing.assert_allclose(found.A, A[~test], rtol=0, atol=1e-15)
    np.testing.assert_allclose(found.test_A, A[test], rtol=0, atol=1e-15)
    assert np.array_equal(found.b, b[~test])
    assert np.array_equal(found.test_b, b[test])
    assert (int((b == 1).sum()), int((b == -1).sum())) == (11208, 34014)


def check_columns(module, folder):
    """What `framed` makes of the table above, by the module given."""
    frame = pd.read_csv(folder / "table.csv", na_values="?", skipinitialspace=True)
    marks = type("Marks", (), {"column": "fold", "value": 1})()
    given = {
        "features": (), "exclude": (), "encode": "ordinal", "test": marks, "train": None,
        "missing": "most-frequent", "unseen": "none", "marks": (),
    }  # fmt: skip
    table = module.framed(frame, "sick", type("S", (), given)(), 0, (), "here")
    assert table.names == ("age", "city", "car")
    assert table.A[:, 0].tolist() == [30, 40, 30, 60, 70, 80]
    assert table.A[:, 1].tolist() == [0, 0, 2, 0, 1, -1]
    assert table.test.tolist() == [False] * 5 + [True]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("frame[name][train].dropna()", "frame[name][~train].dropna()"),
        ("known.mode().iloc[0]", "known.mode().iloc[-1]"),
        ("for name in (*apart, marks)", "for name in apart"),
        ("np.where(known, code, -1.0)", "np.where(known, code, 0.0)"),
        ("words = np.unique(texts[train])", "words = np.unique(texts)"),
    ],
)
def test_wrong_columns_are_noticed(tmp_path, right, wrong):
    written(tmp_path, CITIES)
    check_columns(frames, tmp_path)
    with pytest.raises(AssertionError):
        check_columns(mutant(frames, right, wrong), tmp_path)


def check_drawn(module):
    """Training rows are uniform among those not for testing."""
    keys = {"test": type("Some", (), {"rows": 10})(), "train": 15}
    section = type("S", (), keys)()
    hits = np.zeros(40)
    for seed in range(400):
        train, test = module.split(section, {}, 40, seed)
        assert (train.sum(), test.sum()) == (15, 10)
        assert not (train & test).any()
        hits += train
    # a row trains with probability 15/40: 5 standard deviations of 400 draws are
    # 5 sqrt(400 * 0.375 * 0.625) = 48
    assert np.abs(hits - 150).max() < 48


def test_training_rows_are_uniform():
    check_drawn(table_module)
    for right, wrong in (
        ("np.flatnonzero(among)[chosen]", "np.flatnonzero(among)[: len(chosen)]"),
        ("_drawn(train, section.train", "_drawn(train | test, section.train"),
    ):
        with pytest.raises(AssertionError):
            check_drawn(mutant(table_module, right, wrong))
