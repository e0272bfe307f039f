"""Rows of any shape for models: where they stay, and arrays of files."""

import pickle
import tracemalloc

import numpy as np
import pytest
from mutant import mutant
from shaped_rows import kept, pictures, problem_of, refused, scene

import desim
from desim.errors import InputError
from desim.problem import problem as problem_module
from desim.problem.problem import Gathered, Joined
from desim.runs.premises import decided_by_rows
from desim.scenario.build import build
from desim.scenario.load import load


def test_gathered_rows_are_those_of_the_array():
    A, _ = pictures()
    order = np.random.default_rng(1).permutation(24)[:17]
    right = (A[order] / 255.0).astype(np.float32)
    rows = Gathered(A, order, np.float32, 255.0)
    assert rows.shape == right.shape
    assert rows.dtype == right.dtype
    assert (rows.size, rows.ndim, len(rows)) == (right.size, 4, 17)
    grid = np.array([[3, 1], [0, 16]])
    for place in (5, slice(2, 9), grid, np.arange(17) % 2 == 0):
        assert np.array_equal(rows[place], right[place])
        assert rows[place].dtype == np.float32
    assert np.array_equal(rows.rows(grid[0])[:], right[grid[0]])
    assert np.array_equal(np.take(rows, grid, axis=0), right[grid])
    assert np.array_equal(np.asarray(rows), right)
    assert np.array_equal(pickle.loads(pickle.dumps(rows))[:], right)
    floats = A.astype(np.float32)
    assert np.array_equal(Gathered(floats, order, np.float32, 255.0)[:], right)


def test_joined_arrays_are_one():
    A, _ = pictures()
    both = Joined(A[:10], A[10:])
    place = np.array([[0, 23], [10, 9]])
    assert both.shape == A.shape
    assert np.array_equal(both[place], A[place])
    assert np.array_equal(both[11], A[11])
    twin = mutant(problem_module, "part[place[here] - low]", "part[place[here] - low - 1]")
    assert not np.array_equal(twin.Joined(A[:10], A[10:])[place], A[place])


@pytest.mark.parametrize("agents", [4, 400])
def test_agents_hold_row_numbers_and_no_rows(tmp_path, agents):
    """8 MB of pixels: less than a quarter of that is in memory at a time, whoever has them."""
    A = np.zeros((2000, 1, 64, 64), np.uint8)
    A[np.arange(2000), 0, 3, np.arange(2000) % 64] = 255
    data = kept(tmp_path / "x", A=A, b=np.arange(2000) % 2) | {"scale": "pixel", "test": 0.1}
    room = problem_module.ROOM
    problem_module.ROOM = 1 << 18
    try:
        problem_of(data, agents=agents)
        tracemalloc.start()
        problem = problem_of(data, agents=agents)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        problem_module.ROOM = room
    assert isinstance(problem.A.source, np.memmap)
    assert isinstance(problem.test_A.source, np.memmap)
    assert sorted(problem.A.order.tolist() + problem.test_A.order.tolist()) == list(range(2000))
    assert peak < A.nbytes / 4 + 1_000_000  # the scenario itself takes some 0.8 MB
    assert problem.A[0].dtype == np.float32
    assert problem.A[0].max() == 1.0


def test_mnist_has_the_numbers_of_its_copies(tmp_path):
    A, b = pictures()
    parts = {"x_train": A[:, 0], "y_train": b, "x_test": A[:6, 1], "y_test": b[:6]}
    np.savez(tmp_path / "m.npz", **parts)
    data = {"source": "mnist-npz", "file": str(tmp_path / "m.npz")}
    for how in ({}, {"scale": "none"}):
        lazy = problem_of(data | how, agents=4)
        eager = problem_of(data | how | {"intercept": True}, agents=4)
        assert isinstance(lazy.A, Gathered)
        assert lazy.A.shape == (24, 1, 3, 4)
        for mine, other in ((lazy.A, eager.A), (lazy.test_A, eager.test_A)):
            flat = mine[:].reshape(len(mine), -1)
            assert mine.dtype == other.dtype == np.float32
            assert np.array_equal(flat, other[:, 1:])


# arrays


def test_arrays_are_dealt_by_a_column(tmp_path):
    A, b = pictures()
    writer = np.array(["x", "y", "z"])[np.arange(24) // 8]
    data = kept(tmp_path / "a", A=A, b=b, writer=writer, split=np.arange(24) % 4 == 0)
    problem = problem_of(data, partition={"by": "writer"})
    assert problem.agents == 3
    assert problem.sites == ("x", "y", "z")
    assert problem.A.dtype == np.uint8
    assert np.array_equal(problem.A[:], A)
    assert np.array_equal(problem.b, b)
    marked = problem_of(data | {"test": {"column": "split", "value": 1}}, agents=2)
    assert np.array_equal(marked.test_A[:], A[::4])
    np.savez(tmp_path / "a.npz", inputs=A, classes=b, writer=writer, more=A[:6], others=b[:6])
    file = {"source": "arrays", "file": str(tmp_path / "a.npz"), "inputs": "inputs"}
    file |= {"labels": "classes", "test": {"inputs": "more", "labels": "others"}}
    parted = problem_of(file, partition={"by": "writer"})
    assert np.array_equal(parted.A[:], A)
    assert np.array_equal(parted.test_A[:], A[:6])
    assert np.array_equal(parted.test_b, b[:6])
    for partition in ("iid", "contiguous", {"dirichlet": 5}, {"labels": 2}):
        dealt = problem_of(file, agents=3, partition=partition)
        assert sorted(map(bytes, dealt.A[:])) == sorted(map(bytes, A))
        rows = [np.flatnonzero((A == one).all((1, 2, 3)))[0] for one in dealt.A[:]]
        assert np.array_equal(dealt.b, b[rows])


def test_arrays_train_the_same_from_files_and_from_memory(tmp_path):
    A, b = pictures()
    data = kept(tmp_path / "a", A=A, b=b) | {"scale": "pixel"}
    np.savez(tmp_path / "a.npz", A=A, b=b)
    file = {"source": "arrays", "file": str(tmp_path / "a.npz"), "scale": "pixel"}
    runs = [desim.run(scene(one, agents=4)) for one in (data, file)]
    runs.append(desim.run(scene(data, agents=4) | {"engine": "agents"}))
    assert np.array_equal(runs[0].model, runs[1].model)
    assert np.array_equal(runs[0].model, runs[2].model)
    assert runs[0].model[-1].any()


def test_arrays_suit_losses_that_are_no_models(tmp_path):
    A, b = pictures()
    data = kept(tmp_path / "a", A=A, b=b) | {"scale": "pixel"}
    section = scene(data, agents=4)
    section["problem"] = {"data": data, "loss": "softmax", "agents": 4, "partition": "contiguous"}
    problem = build(load(section)).problem
    assert np.array_equal(problem.A, A.reshape(24, -1) / 255.0)


def test_a_public_number_of_classes(tmp_path):
    A, b = pictures()
    data = kept(tmp_path / "a", A=A, b=b) | {"scale": "pixel"}
    assert problem_of(data, agents=4).dim == 24 * 3
    assert problem_of(data | {"classes": 10}, agents=4).dim == 24 * 10
    text = r"classes: found 2, and label 2 in row 2; allowed with it: whole numbers 0 to 1"
    refused(text, data | {"classes": 2}, agents=4)
    words = kept(tmp_path / "w", A=A, b=b.astype(str)) | {"classes": 3}
    refused(r"classes: found 3 with labels of type <U\d+; allowed", words, agents=4)
    section = scene(data | {"classes": 3}, agents=4)
    del section["problem"]["model"]
    section["problem"]["loss"] = "softmax"
    with pytest.raises(InputError, match=r"found 3 with loss softmax; allowed: problem\.loss: {so"):
        load(section)


def test_classes_are_counted_from_zero(tmp_path):
    """In arrays that are dealt too, whatever the type of labels; others are numbered."""
    A, b = pictures()
    whole = {"A": A.reshape(4, 6, 2, 3, 4), "test_A": A[:5]}
    data = {"source": "npz", "file": str(tmp_path / "n.npz")}
    for label in (b, b.astype(float), b - 1, b - 1.5):
        np.savez(tmp_path / "n.npz", **whole, b=label.reshape(4, 6), test_b=label[:5])
        problem = problem_of(data)
        assert problem.b.dtype == np.int64
        assert [problem.b.tolist(), problem.test_b.tolist()] == [b.tolist(), b[:5].tolist()]
    np.savez(tmp_path / "n.npz", **whole, b=b.reshape(4, 6) + 1, test_b=b[:5] + 1)
    text = r"found labels 1 to 3, and none that is 0; allowed: classes counted from 0"
    refused(text, data)
    refused(rf"{text}, or `classes: 4`", kept(tmp_path / "a", A=A, b=b + 1.0), agents=4)
    assert problem_of(kept(tmp_path / "a", A=A, b=b + 1) | {"classes": 4}, agents=4).b.min() == 1


def test_what_rows_decide_is_said(tmp_path):
    A, b = pictures()
    data = kept(tmp_path / "a", A=A, b=b) | {"scale": "pixel"}
    counted = "problem.model: classes, and with them the model's size, are counted in the labels"
    assert list(decided_by_rows(load(scene(data, agents=4)))) == [counted]
    assert list(decided_by_rows(load(scene(data | {"classes": 3}, agents=4)))) == []
    (tmp_path / "a.txt").write_text("the cat saw the dog", "utf-8")
    text = {"source": "text", "file": str(tmp_path / "a.txt"), "length": 2}
    words = "problem.data.tokens: the vocabulary is that of all words found"
    public = {"tokens": "words", "vocabulary": str(tmp_path / "a.txt")}
    for more, said in (({}, []), ({"tokens": "words"}, [words]), (public, [])):
        assert list(decided_by_rows(load(scene(text | more, "bigrams", agents=4)))) == said


def test_dealt_arrays_with_test_rows(tmp_path):
    A, b = pictures()
    whole = {"A": A.reshape(4, 6, 2, 3, 4), "b": b.reshape(4, 6)}
    data = {"source": "npz", "file": str(tmp_path / "n.npz")}
    np.savez(tmp_path / "n.npz", **whole, test_A=A[:5], test_b=b[:5])
    problem = problem_of(data)
    assert problem.test_A.shape == (5, 2, 3, 4)
    assert problem.test_b.tolist() == b[:5].tolist()
    np.savez(tmp_path / "n.npz", **whole, test_A=A[:5])
    refused(r"n\.npz: found test_A without test_b; allowed: both or neither", data)
    np.savez(tmp_path / "n.npz", **whole, test_A=A[:5, 0], test_b=b[:5])
    refused(r"found test_A \(5, 3, 4\) and test_b \(5,\); allowed: rows like those of A", data)


def test_what_is_wrong_with_arrays_is_said(tmp_path):
    A, b = pictures()
    good = kept(tmp_path / "a", A=A, b=b, writer=b[1:])
    refused(r"npy files: found 'C'; allowed: A, b, writer", good | {"inputs": "C"}, agents=2)
    refused(r"by: found no column|npy files: found 'user'", good, partition={"by": "user"})
    refused(r"column 'writer' of shape \(23,\); allowed: \(24,\)", good, partition={"by": "writer"})
    refused(
        r"inputs \(24, 2, 3, 4\) and labels \(23,\)", kept(tmp_path / "c", A=A, b=b[1:]), agents=2
    )
    objects = np.array([{}, 2], object)
    refused(r"without pickled objects", kept(tmp_path / "d", A=objects, b=b), agents=2)
    broken = A / 1.0
    broken[4, 1, 2, 3] = np.nan
    text = r"folder: inputs\[4, 1, 2, 3\]: found nan; allowed: finite numbers"
    refused(text, kept(tmp_path / "e", A=broken, b=b), agents=2)
    text = r"labels\[3\]: found inf; allowed: finite"
    refused(text, kept(tmp_path / "f", A=A, b=[0.0] * 3 + [np.inf] * 21), agents=2)
    refused(r"found complex128; allowed: real", kept(tmp_path / "g", A=A * 1j, b=b), agents=2)
    refused(r"found both of file and folder|does not exist", good | {"file": "x.npz"}, agents=2)
    refused(r"found neither of file and folder; allowed: one", {"source": "arrays"}, agents=2)
    (tmp_path / "a" / "A.npy").write_bytes(b"no array")
    refused(r"A\.npy cannot be read as npy", good, agents=2)
    twice = kept(tmp_path / "h", A=A, b=np.stack([b, b], 1))
    refused(r"labels of shape \(24, 2\) for model linear-scores", twice, agents=2)
    refused(r"the labels are no classes", twice, "bigrams", agents=2, partition={"dirichlet": 1})
