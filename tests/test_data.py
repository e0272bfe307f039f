"""Data as scenarios ask for them, from every source, and what is refused."""

import gzip

import numpy as np
import pandas as pd
import pytest
from sections import TABLE, made, shares, written

from desim.errors import InputError

# generated rows


def test_generated_classes_are_scikit_learns():
    """fed-plt.md, section 1: 15 features, 2 informative, ones in front, in order, labels -1, 1."""
    shards = made(source="synthetic", kind="classification", rows=20, dim=16, agents=10)
    assert shards.A.shape == (200, 16)
    assert shards.start.tolist() == list(range(0, 201, 20))
    assert shards.names[:2] == ("intercept", "x0")
    assert np.all(shards.A[:, 0] == 1.0)
    assert set(shards.b) == {-1.0, 1.0}
    # flip_y = 1 % of 200 labels: the classes are equal up to those
    assert abs(shards.b.sum()) <= 4
    # the class means differ by 2 class_sep = 2 in some coordinate only in informative features
    # (hypercube corners at +-1); the 13 others are N(0, 1): 5 standard errors of a difference of
    # means of 100 rows each are 5 sqrt(2/100) = 0.71
    gap = np.abs(shards.A[shards.b > 0].mean(axis=0) - shards.A[shards.b < 0].mean(axis=0))
    assert np.sum(gap > 0.71) <= 2


def test_generated_data_are_a_function_of_the_seed():
    section = {"source": "synthetic", "kind": "classification", "rows": 5, "dim": 4, "agents": 3}
    np.random.seed(1)  # noqa: NPY002  the global generator has no part in it
    first = made(**section, seed=5)
    np.random.seed(2)  # noqa: NPY002
    again, other = made(**section, seed=5), made(**section, seed=6)
    assert np.array_equal(first.A, again.A)
    assert np.array_equal(first.b, again.b)
    assert not np.array_equal(first.A, other.A)


def test_generated_regression_is_linear():
    section = {"source": "synthetic", "kind": "regression", "rows": 40, "dim": 6, "agents": 5}
    exact = made("squared", **section, noise=0, intercept=True)
    w, rest, *_ = np.linalg.lstsq(exact.A, exact.b)
    assert rest[0] < 1e-20
    assert np.abs(w).min() > 1e-9
    noisy = made("squared", **section, noise=0.5, intercept=True)
    assert np.array_equal(noisy.A, exact.A)
    deviation = np.std(noisy.b - exact.b)
    # of 200 normal draws: standard error of the deviation 0.5 / sqrt(400) = 0.025
    assert abs(deviation - 0.5) < 5 * 0.025


def test_an_agent_more_changes_no_other_agents_rows():
    section = {"source": "synthetic", "kind": "regression", "rows": 7, "dim": 3, "test": 0.3}
    few, many = made("squared", **section, agents=4), made("squared", **section, agents=5)
    assert np.array_equal(few.A, many.A[:28])
    assert np.array_equal(few.b, many.b[:28])
    assert np.array_equal(few.test_A, many.test_A[: len(few.test_A)])


def test_generated_rows_are_for_training_and_test_rows_come_on_top():
    section = {"source": "synthetic", "kind": "classification", "rows": 30, "dim": 4, "agents": 3}
    shards = made(**section, test=0.25)
    assert len(shards.b) == 90
    assert shards.test_A.shape == (30, 4)
    assert np.all(shards.test_A[:, 0] == 1.0)


def test_generated_rows_need_agents():
    with pytest.raises(InputError, match=r"problem\.agents: missing"):
        made(source="synthetic", kind="classification", rows=3, dim=4)


# bundled and downloaded tables


@pytest.mark.parametrize(
    ("name", "shape", "loss", "positive"),
    [
        ("breast_cancer", (569, 30), "logistic", ()),
        ("digits", (1797, 64), "logistic", (5, 6, 7, 8, 9)),
        ("wine", (178, 13), "hinge", ("class_1",)),
        ("iris", (150, 4), "hinge", ("virginica", 1)),
        ("diabetes", (442, 10), "squared", ()),
    ],
)
def test_bundled(name, shape, loss, positive):
    keys = {"positive": list(positive)} if positive else {}
    shards = made(loss, source="sklearn", name=name, agents=4, **keys)
    assert shards.A.shape == shape
    assert len(shards.names) == shape[1]
    assert np.isfinite(shards.A).all()
    assert (set(shards.b) == {-1.0, 1.0}) == (loss in ("logistic", "hinge"))


def test_positive_labels_by_number_and_by_name():
    by = {"source": "sklearn", "name": "breast_cancer", "agents": 1, "partition": "contiguous"}
    default, named, code = made(**by), made(**by, positive="malignant"), made(**by, positive=0)
    assert np.array_equal(named.b, code.b)
    assert np.array_equal(default.b, -named.b)  # the greater label, benign, is 1 by default
    assert np.sum(default.b == 1.0) == 357


def test_openml_is_fetched_once_and_read_like_a_table(monkeypatch):
    from sklearn import datasets

    frame = pd.DataFrame({"a": [1.0, 2.0], "kind": ["x", "y"], "y": ["p", "n"]})
    asked = {}

    def fetch(**settings):
        asked.update(settings)
        return type("Bunch", (), {"frame": frame.copy(), "target_names": ["y"]})()

    monkeypatch.setattr(datasets, "fetch_openml", fetch)
    shards = made(source="openml", name="toy", version=3, agents=1, partition="contiguous")
    assert (asked["name"], asked["version"]) == ("toy", 3)
    assert shards.A.tolist() == [[1.0], [2.0]]
    assert shards.b.tolist() == [1.0, -1.0]

    def offline(**settings):
        raise OSError("no route to host")

    monkeypatch.setattr(datasets, "fetch_openml", offline)
    with pytest.raises(InputError, match="openml toy: no route to host"):
        made(source="openml", name="toy", agents=1)


# files


def test_csv_and_parquet_are_read_alike(tmp_path):
    csv = made(**written(tmp_path, TABLE), partition="contiguous")
    assert csv.names == ("age", "group", "height")
    assert csv.A.tolist() == [[30.0, 2.0, 1.5], [40.0, 1.0, 1.75], [50.0, 2.0, 1.25]]
    assert csv.b.tolist() == [-1.0, 1.0, 1.0]
    pd.read_csv(tmp_path / "table.csv").to_parquet(tmp_path / "table.parquet")
    (tmp_path / "table.csv.gz").write_bytes(gzip.compress(TABLE.encode()))
    for source, name in (("parquet", "table.parquet"), ("csv", "table.csv.gz")):
        file = {"source": source, "file": str(tmp_path / name), "label": "sick", "agents": 1}
        other = made(**file, partition="contiguous")
        assert np.array_equal(other.A, csv.A)
        assert np.array_equal(other.b, csv.b)
        assert other.names == csv.names


def test_named_features_and_separator(tmp_path):
    file = written(tmp_path, TABLE.replace(",", ";"))
    shards = made(**file, separator=";", features=["height", "age"], partition="contiguous")
    assert shards.A[0].tolist() == [1.5, 30.0]


def test_every_digit_of_a_csv_is_kept(tmp_path):
    x = np.random.default_rng(0).normal(size=2000) * 1e-3
    rows = "".join(f"{value!r},{k % 2}\n" for k, value in enumerate(x.tolist()))
    shards = made(**written(tmp_path, "x,sick\n" + rows), partition="contiguous")
    assert np.array_equal(shards.A[:, 0], x)


@pytest.mark.slow
def test_census(shared):
    file = {"source": "csv", "file": str(shared / "data" / "adult.csv.gz"), "label": "income"}
    shards = made(**file, positive=">50K", partition={"by": "split"})
    assert np.diff(shards.start).tolist() == [16281, 32561]  # README: test, train
    assert [int(np.sum(shards.b[i] == 1.0)) for i in shares(shards)] == [3846, 7841]
    assert shards.names == (
        "age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week",
    )  # fmt: skip
    scaled = made(**file, agents=5, scale="standard", test=0.2, intercept=True)
    assert len(scaled.test_b) == round(0.2 * 48842)
    np.testing.assert_allclose(scaled.A.mean(axis=0), [1, *[0] * 6], atol=1e-12)
    np.testing.assert_allclose(scaled.A.std(axis=0), [0, *[1] * 6], atol=1e-12)
    with pytest.raises(InputError, match="row 1, column 'workclass': found 'State-gov'"):
        made(**file, features=["workclass"], agents=2)


@pytest.mark.parametrize(
    ("text", "change", "message"),
    [
        (TABLE, {"label": "sik"}, "found no column 'sik'.*did you mean 'sick'"),
        (TABLE, {"features": ["agee"]}, "features: found no column 'agee'.*'age'"),
        (TABLE, {"features": ["city"]}, "row 1, column 'city': found 'Bern'"),
        (TABLE, {"features": ["sick"]}, "'sick' is the label"),
        (TABLE, {"label": "age"}, "logistic loss needs two classes, found 3 labels: 30, 40, 50"),
        (TABLE, {"label": "city", "loss": "squared"}, "squared loss needs numbers, found Bern"),
        (TABLE, {"positive": "maybe"}, "found no label 'maybe'; allowed: no, yes"),
        (TABLE, {"positive": ["yes", "no"]}, "every label is positive"),
        (TABLE, {"agents": 4}, "4 agents for 3 training rows"),
        (TABLE, {"test": 0.9}, "0.9 of 3 rows leaves none"),
        (TABLE, {"agents": None, "partition": {"by": "town"}}, "found no column 'town'"),
        (TABLE, {"agents": 3, "partition": {"by": "city"}}, "found 3; allowed: 2"),
        (TABLE.replace("1.75", ""), {}, "row 2, column 'height': the value is missing"),
        (TABLE.replace("40", "nan"), {}, "row 2, column 'age': the value is missing"),
        (TABLE.replace("40", "inf"), {}, "row 2, column 'age': found inf"),
        (TABLE.replace("40", "forty"), {}, "row 2, column 'age': found 'forty'"),
        (TABLE.replace(",yes\n", "\n", 1), {}, "line 3: found 4 values; allowed: 5"),
        (TABLE.replace("yes", ""), {}, "row 2, column 'sick': the value is missing"),
        (TABLE.replace("Thun", "Thun,7"), {}, "line 3: found 6 values; allowed: 5"),
        (
            TABLE.replace("no\n", "no,1\n").replace("yes\n", "yes,1\n"),
            {},
            "line 2: found 6 values; allowed: 5",
        ),
        ("", {}, "No columns to parse"),
        ("age,sick\n", {}, "has no"),
        ("city,sick\nBern,no\n", {}, "no numeric column besides 'sick'"),
    ],
)
def test_wrong_tables_are_refused(tmp_path, text, change, message):
    keys = {**written(tmp_path, text), **change}
    with pytest.raises(InputError, match=message):
        made(**{key: value for key, value in keys.items() if value is not None})


def npz(folder, **arrays):
    np.savez(folder / "x.npz", **arrays)
    return {"source": "npz", "file": str(folder / "x.npz")}


def test_arrays_are_taken_as_they_are(tmp_path, golden):
    found = golden("fed-plt")
    A, b = np.array(found["A"]), np.array(found["b"])
    shards = made(**npz(tmp_path, A=A, b=b))
    assert np.array_equal(shards.A, A.reshape(-1, 4))
    assert np.array_equal(shards.b, b.ravel())
    assert shards.start.tolist() == [0, 6, 12, 18, 24]


@pytest.mark.parametrize(
    ("arrays", "keys", "message"),
    [
        ({"A": np.ones((2, 3, 4))}, {}, "no array b; found A"),
        ({"A": np.ones((6, 4)), "b": np.ones(6)}, {}, r"found A \(6, 4\)"),
        ({"A": np.ones((2, 3, 4)), "b": np.ones((2, 4))}, {}, r"b \(2, 4\)"),
        ({"A": np.ones((2, 3, 4)), "b": np.ones((2, 3))}, {"agents": 3}, "found 3; allowed: 2"),
        ({"A": np.full((1, 1, 1), np.nan), "b": np.ones((1, 1))}, {}, r"A\[0, 0, 0\]"),
        ({"A": np.array([[["x"]]]), "b": np.ones((1, 1))}, {}, "A .* holds <U1; allowed: real"),
        ({"A": np.ones((1, 1, 1)) * 1j, "b": np.ones((1, 1))}, {}, "A .* holds complex128"),
        ({"A": np.array([{}], object), "b": np.ones((1, 1))}, {}, "without pickled objects"),
    ],
)
def test_wrong_arrays_are_refused(tmp_path, arrays, keys, message):
    with pytest.raises(InputError, match=message):
        made(**npz(tmp_path, **arrays), **keys)


def test_what_is_no_archive_is_refused(tmp_path):
    for content in (b"", b"some text", b"PK\x03\x04 cut"):
        (tmp_path / "x.npz").write_bytes(content)
        with pytest.raises(InputError, match="cannot be read as npz"):
            made(source="npz", file=str(tmp_path / "x.npz"))
