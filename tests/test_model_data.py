"""Rows of any shape for models: arrays, images, text, data sets of plug-ins and libraries."""

import pickle
import sys
import tracemalloc
import types
from pathlib import Path

import numpy as np
import pytest
from mutant import mutant
from PIL import Image

import desim
from desim.errors import InputError
from desim.kernels.gradients import batch_gradient
from desim.models import augment
from desim.models.augment import Augmentation, Place
from desim.problem.data import gathered, texts
from desim.problem.data.gathered import Gathered, Joined
from desim.scenario.build import build
from desim.scenario.load import load

PLUGIN = str(Path(__file__).parent / "plugins" / "shaped.py")


def scene(data, model="linear-scores", **problem):
    return {
        "name": "rows",
        "seed": 3,
        "plugins": [PLUGIN],
        "problem": {"data": data, "model": model, **problem},
        "algorithm": {
            "name": "fedavg",
            "local": {"solver": "sgd", "batch": 1, "epochs": 2, "step": 0.1},
        },
        "observe": {"metrics": ["loss"]},
        "stop": {"rounds": 3},
    }


def problem_of(data, model="linear-scores", **problem):
    return build(load(scene(data, model, **problem))).problem


def refused(match, data, model="linear-scores", **problem):
    with pytest.raises(InputError, match=match):
        problem_of(data, model, **problem)


def kept(folder, **arrays):
    folder.mkdir(exist_ok=True)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return {"source": "arrays", "folder": str(folder)}


def pictures(rows=24, seed=0):
    random = np.random.default_rng(seed)
    A = random.integers(0, 256, (rows, 2, 3, 4)).astype(np.uint8)
    return A, np.arange(rows) % 3


# rows that stay where they are


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
    twin = mutant(gathered, "part[place[here] - low]", "part[place[here] - low - 1]")
    assert not np.array_equal(twin.Joined(A[:10], A[10:])[place], A[place])


@pytest.mark.parametrize("agents", [4, 50])
def test_agents_hold_row_numbers_and_no_rows(tmp_path, agents):
    """2 MB of pixels: less than a quarter of that is in memory at a time, whoever has them."""
    A = np.zeros((500, 1, 64, 64), np.uint8)
    A[np.arange(500), 0, 3, np.arange(500) % 64] = 255
    data = kept(tmp_path / "x", A=A, b=np.arange(500) % 2) | {"scale": "pixel", "test": 0.1}
    some = gathered.SOME
    gathered.SOME = 16
    try:
        problem_of(data, agents=agents)
        tracemalloc.start()
        problem = problem_of(data, agents=agents)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gathered.SOME = some
    assert isinstance(problem.A.source, np.memmap)
    assert isinstance(problem.test_A.source, np.memmap)
    assert sorted(problem.A.order.tolist() + problem.test_A.order.tolist()) == list(range(500))
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
    refused(r"found label 2 in row 2; allowed: 0 to 1, as classes", data | {"classes": 2}, agents=4)


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


# images


def folders(top, sizes=(4, 4), classes=("cat", "dog"), each=3, mode="RGB"):
    random, pixels = np.random.default_rng(0), []
    for name in classes:
        (top / name).mkdir(parents=True)
        for number in range(each):
            shape = (*sizes, 3) if mode == "RGB" else sizes
            one = random.integers(0, 256, shape).astype(np.uint8)
            pixels.append(one)
            Image.fromarray(one).save(top / name / f"{number}.png")
    return np.array(pixels)


def test_folders_of_images(tmp_path):
    found = folders(tmp_path / "i")
    problem = problem_of({"source": "images", "folder": str(tmp_path / "i")}, agents=1)
    whole = problem_of(
        {"source": "images", "folder": str(tmp_path / "i")}, agents=1, partition="contiguous"
    )
    assert problem.A.shape == (6, 3, 4, 4)
    assert np.array_equal(whole.A[:], np.moveaxis(found / 255.0, -1, 1).astype(np.float32))
    assert whole.b.tolist() == [0, 0, 0, 1, 1, 1]
    gray = {"source": "images", "folder": str(tmp_path / "i"), "channels": 1, "size": [2, 3]}
    assert problem_of(gray, agents=2).A.shape == (6, 1, 2, 3)


def test_folders_of_train_and_test_and_of_users(tmp_path):
    folders(tmp_path / "p" / "train", classes=("2", "10"), mode="L")
    folders(tmp_path / "p" / "test", classes=("2", "10"), mode="L", each=1)
    data = {"source": "images", "folder": str(tmp_path / "p")}
    problem = problem_of(data, agents=2, partition="contiguous")
    assert problem.A.shape == (6, 1, 4, 4)
    assert sorted(problem.b.tolist()) == [2, 2, 2, 10, 10, 10]
    assert sorted(problem.test_b.tolist()) == [2, 10]
    for user, each in (("ann", 2), ("bob", 3)):
        folders(tmp_path / "u" / user, each=each)
    data = {"source": "images", "folder": str(tmp_path / "u"), "levels": ["writer", "class"]}
    owned = problem_of(data, partition={"by": "writer"})
    assert owned.sites == ("ann", "bob")
    assert owned.rows.tolist() == [4, 6]
    assert owned.b.tolist() == [0, 0, 1, 1, 0, 0, 0, 1, 1, 1]


def test_what_is_wrong_with_images_is_said(tmp_path):
    data = {"source": "images", "folder": str(tmp_path / "i")}
    refused(r"folder: .*i.* (does not exist|is no)", data, agents=2)
    folders(tmp_path / "i")
    (tmp_path / "i" / "eel").mkdir()
    refused(r"found no image in eel; allowed: images", data, agents=2)
    Image.fromarray(np.zeros((5, 4, 3), np.uint8)).save(tmp_path / "i" / "eel" / "0.png")
    refused(r"eel/0\.png has 5 x 4 pixels and 0\.png has 4 x 4; allowed.*size: \[", data, agents=2)
    assert problem_of(data | {"size": [4, 4]}, agents=2).A.shape == (7, 3, 4, 4)
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(tmp_path / "i" / "eel" / "0.png")
    refused(r"eel/0\.png is L and 0\.png is RGB; allowed.*channels: 1 or 3", data, agents=2)
    (tmp_path / "i" / "eel" / "0.png").write_bytes(b"\x89PNG no image")
    refused(r"0\.png cannot be read as an image", data, agents=2)
    (tmp_path / "i" / "eel" / "0.png").rename(tmp_path / "i" / "eel" / "0.txt")
    refused(r"found '0\.txt' in eel; allowed: images", data, agents=2)
    refused(r"levels: found \['writer'\]; allowed", data | {"levels": ["writer"]}, agents=2)
    deep = data | {"levels": ["writer", "class"]}
    refused(r"found '0\.png' in cat; allowed: folders, one for each class", deep, agents=2)
    sixteen = np.zeros((4, 4), np.uint16)
    (tmp_path / "i" / "eel" / "0.txt").unlink()
    Image.fromarray(sixteen).save(tmp_path / "i" / "eel" / "0.png")
    refused(r"in mode I;16; allowed: images of 8 bits", data, agents=2)


# text


def test_windows_of_bytes(tmp_path):
    text = "to be or not to be, that is the question: é"
    (tmp_path / "a.txt").write_text(text, "utf-8")
    (tmp_path / "b.txt").write_text("whether 'tis nobler in the mind", "utf-8")
    data = {"source": "text", "folder": str(tmp_path), "length": 8}
    problem = problem_of(data, "bigrams", partition={"by": "file"})
    assert problem.sites == ("a", "b")
    code = text.encode()
    assert problem.rows.tolist() == [(len(code) - 1) // 8, 3]
    for row in range(problem.rows[0]):
        assert bytes(problem.A[row].astype(np.uint8)) == code[8 * row : 8 * row + 8]
        assert bytes(problem.b[row].astype(np.uint8)) == code[8 * row + 1 : 8 * row + 9]
    assert problem.dim == 256**2
    assert bytes(problem.A[problem.start[1]].astype(np.uint8)) == b"whether "
    one = problem_of(
        {"source": "text", "file": str(tmp_path / "a.txt"), "length": 8, "every": 3, "test": 0.2},
        "bigrams",
        agents=2,
    )
    assert isinstance(one.A.source.base, np.ndarray)
    assert len(one.A) + len(one.test_A) == -(-(len(code) - 8) // 3)
    twin = mutant(texts, "windows[1:]", "windows[:-1]")
    section = load(scene({"source": "text", "file": str(tmp_path / "a.txt"), "length": 8},
                         "bigrams", agents=1)).problem.data  # fmt: skip
    wrong = twin.text_windows(section)[0]
    assert not np.array_equal(wrong.inputs[:][:, 1:], wrong.labels[:][:, :-1])
    right = texts.text_windows(section)[0]
    assert np.array_equal(right.inputs[:][:, 1:], right.labels[:][:, :-1])


def test_words_and_characters_by_a_public_vocabulary(tmp_path):
    (tmp_path / "a.txt").write_text("the cat saw the dog", "utf-8")
    (tmp_path / "v.txt").write_text("cat\nthe\nsaw\n", "utf-8")
    data = {"source": "text", "file": str(tmp_path / "a.txt"), "length": 4, "tokens": "words"}
    counted = problem_of(data, "bigrams", agents=1)
    assert counted.A[:].tolist() == [[4, 1, 3, 4]]  # cat, dog, saw, the
    assert counted.b[:].tolist() == [[1, 3, 4, 2]]
    listed = problem_of(data | {"vocabulary": str(tmp_path / "v.txt")}, "bigrams", agents=1)
    assert listed.A[:].tolist() == [[2, 1, 3, 2]]
    assert listed.b[:].tolist() == [[1, 3, 2, 0]]
    assert listed.dim == 4**2
    letters = problem_of(data | {"tokens": "characters", "length": 2}, "bigrams", agents=1)
    assert letters.loss.facts.classes == 1 + len(set("the cat saw the dog"))


def test_text_trains_and_predicts(tmp_path):
    (tmp_path / "a.txt").write_text("abcabc" * 40)
    data = {"source": "text", "file": str(tmp_path / "a.txt"), "length": 6, "test": 0.2}
    section = scene(data, "bigrams", agents=4)
    section["algorithm"]["local"]["step"] = 5.0
    section["observe"] = {"metrics": ["loss", "accuracy"]}
    runs = [desim.run(section | {"engine": engine}) for engine in ("cohort", "agents")]
    assert np.array_equal(runs[0].model, runs[1].model)
    found = runs[0].metrics
    last = found[found["metric"] == "accuracy"]["value"].iloc[-1]
    assert last == 1.0


def test_what_is_wrong_with_text_is_said(tmp_path):
    (tmp_path / "a.txt").write_text("short")
    data = {"source": "text", "file": str(tmp_path / "a.txt"), "length": 5}
    refused(r"a\.txt has 5 bytes; allowed: more than length, 5", data, "bigrams", agents=1)
    (tmp_path / "a.txt").write_text("")
    refused(r"a\.txt is empty", data, "bigrams", agents=1)
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe broken")
    refused(r"cannot be read as text", data | {"tokens": "words"}, "bigrams", agents=1)
    (tmp_path / "c").mkdir()
    none = {"source": "text", "folder": str(tmp_path / "c"), "length": 5}
    refused(r"found no \.txt in", none, "bigrams", agents=1)
    refused(r"tokens bytes, which need none", data | {"vocabulary": PLUGIN}, "bigrams", agents=1)
    refused(r"labels of shape .* for model linear-scores", data | {"length": 2}, agents=1)


# augmentation


def augmented(folder, changes, engine="cohort", **more):
    A, b = pictures(40)
    data = kept(folder / "a", A=A, b=b) | {"scale": "pixel", "test": 0.2}
    section = scene(data, agents=5, augment=changes) | {"engine": engine, **more}
    section["algorithm"]["local"]["batch"] = 3
    return section


EVERY = ["flip", {"crop": 1}, {"noise": 0.1}]


@pytest.mark.parametrize("changes", [*EVERY, EVERY], ids=str)
def test_augmentation_has_the_same_bits_everywhere(tmp_path, changes):
    runs = {
        engine: desim.run(augmented(tmp_path, changes, engine)) for engine in ("cohort", "agents")
    }
    assert np.array_equal(runs["cohort"].model, runs["agents"].model)
    for table in ("events", "metrics"):
        assert getattr(runs["cohort"], table).equals(getattr(runs["agents"], table))
    plain = desim.run(augmented(tmp_path, "none"))
    assert not np.array_equal(plain.model, runs["cohort"].model)
    assert np.array_equal(plain.model[0], runs["cohort"].model[0])


def test_a_row_alone_changes_as_beside_others():
    inputs = np.random.default_rng(0).random((3, 4, 2, 5, 6))
    changes = (Augmentation("flip"), Augmentation("crop", 2), Augmentation("noise", 0.1))
    agent, round_ = np.array([0, 7, 3]), np.array([2, 2, 5])
    row = np.arange(12).reshape(3, 4)

    def done(module, place, r=slice(None), h=slice(None)):
        part = inputs[r][:, h]
        return module.augmented(part, changes, Place(9, agent[r], round_[r], 1, place[r][:, h]))

    whole = done(augment, row)
    alone = [
        done(augment, row, slice(r, r + 1), slice(h, h + 1)) for r in range(3) for h in range(4)
    ]
    assert np.array_equal(np.concatenate(alone).reshape(whole.shape), whole)
    for more in ({"agent": 1}, {"round": 1}, {"row": 1}, {"seed": 1}, {"step": 1}):
        place = Place(9, agent, round_, 1, row)
        moved = place._replace(**{key: getattr(place, key) + one for key, one in more.items()})
        assert not np.array_equal(augment.augmented(inputs, changes, moved), whole)
    twin = mutant(augment, "place.row + KINDS", "np.arange(place.row.shape[1]) + KINDS")
    lone = done(twin, row, slice(1, 2), slice(2, 3))
    assert not np.array_equal(lone[0, 0], done(twin, row)[1, 2])


def test_what_flip_crop_and_noise_do():
    inputs = np.arange(1.0, 61.0).reshape(5, 6, 2)[:, :, None, :]  # 5 agents, 6 rows, 1 x 2 pixels
    place = Place(1, np.arange(5), np.zeros(5, int), 0, np.tile(np.arange(6), (5, 1)))
    turned = augment.augmented(inputs, (Augmentation("flip"),), place)
    same = (turned == inputs).all((2, 3))
    assert np.array_equal(turned[~same], inputs[~same][..., ::-1])
    assert 5 < same.sum() < 25  # of 30 fair coins, 3.7 standard deviations about 15
    large = np.ones((5, 6, 1, 4, 4))
    cropped = augment.augmented(large, (Augmentation("crop", 1),), place)
    rows, columns = cropped.max(-1).sum(-1), cropped.max(-2).sum(-1)
    assert set(rows.ravel()) == set(columns.ravel()) == {3.0, 4.0}
    assert np.array_equal(cropped.sum((-2, -1)), rows * columns)
    noisy = augment.augmented(large, (Augmentation("noise", 0.5),), place) - large
    # 480 normals: the deviation's standard error is 0.5 / sqrt(960) = 0.016
    assert abs(noisy.std() - 0.5) < 5 * 0.016


def test_what_is_measured_is_not_augmented(tmp_path):
    """The model at the start has the loss of plain rows; so has the gradient of the metric."""
    problems = [build(load(augmented(tmp_path, one))).problem for one in ("none", EVERY)]
    x = np.linspace(-1.0, 1.0, problems[0].dim)
    assert problems[0].objective(x) == problems[1].objective(x)
    assert np.array_equal(problems[0].total_gradient(x), problems[1].total_gradient(x))
    assert problems[0].accuracy(x) == problems[1].accuracy(x)
    assert problems[0].digest() != problems[1].digest()
    trained = [batch_gradient([1], x[None], 2, 1, 0, one.data) for one in problems]
    assert not np.array_equal(*trained)


def test_what_cannot_be_augmented_is_refused(tmp_path):
    A, b = pictures()
    data = kept(tmp_path / "a", A=A, b=b)
    text = r"augment: noise: found inputs of type uint8; allowed: real numbers"
    refused(text, data, agents=2, augment={"noise": 1})
    refused(r"found flip twice; allowed: once", data, agents=2, augment=["flip", "flip"])
    flat = kept(tmp_path / "b", A=A.reshape(24, -1), b=b)
    text = r"augment: crop: found inputs of shape \(24,\); allowed: images"
    refused(text, flat, agents=2, augment={"crop": 1})
    section = scene(flat, agents=2, augment="flip")
    del section["problem"]["model"]
    section["problem"]["loss"] = "softmax"
    with pytest.raises(InputError, match=r"augment: found flip with loss softmax; allowed: none"):
        load(section)


# data sets of plug-ins and libraries


def test_a_plug_ins_data_set():
    data = {"source": "plugin", "name": "spoken", "arguments": {"rows": 20}}
    problem = problem_of(data, partition={"by": "speaker"})
    assert problem.sites == ("a", "b")
    assert problem.A.shape == (16, 2, 3)
    assert problem.test_b.tolist() == [4 % 3, 9 % 3, 14 % 3, 19 % 3]
    refused(r"name: found 'spoke'; allowed: spoken; did you mean", data | {"name": "spoke"})
    refused(r"spoken raised TypeError.*'lines'", data | {"arguments": {"lines": 1}}, agents=2)

    def wrong(how):
        return data | {"arguments": {"rows": 20, "wrong": how}}

    refused(r"inputs \(20, 2, 3\) and labels \(19,\); allowed", wrong("labels"), agents=2)
    refused(r"inputs\[1, 0, 2\]: found nan; allowed: finite", wrong("nan"), agents=2)
    refused(r"column 'speaker' of shape \(19,\); allowed: \(20,\)", wrong("column"), agents=2)
    refused(r"read returned a ndarray; allowed: desim\.model\.Examples", wrong("rows"), agents=2)
    refused(r"found a rule for test rows, but these data bring", data | {"test": 0.1}, agents=2)
    assert len(problem_of(data | {"test": {"rows": 2}}, agents=2).test_A) == 2


class Digits:
    """As torchvision's data sets are: items (image, label)."""

    def __init__(self, root, train=True):
        self.root, self.rows = root, 12 if train else 5

    def __len__(self):
        return self.rows

    def __getitem__(self, place):
        return Image.fromarray(np.full((4, 3), place, np.uint8)), place % 2


def test_a_data_set_of_torchvision(monkeypatch, tmp_path):
    data = {"source": "torch", "of": "torchvision.datasets.Digits"}
    data |= {"arguments": {"root": {"path": "here"}}, "test_arguments": {"train": False}}
    refused(r"found no torchvision here; allowed: pip install torchvision", data, agents=2)
    package, module = types.ModuleType("torchvision"), types.ModuleType("torchvision.datasets")
    module.Digits = Digits
    monkeypatch.setitem(sys.modules, "torchvision", package)
    monkeypatch.setitem(sys.modules, "torchvision.datasets", module)
    problem = problem_of(data | {"scale": "pixel"}, agents=2, partition="contiguous")
    assert problem.A.shape == (12, 1, 4, 3)
    assert problem.A[7][0, 0, 0] == np.float32(7 / 255)
    assert len(problem.test_A) == 5
    refused(
        r"of: found 'os\.system'; allowed: torchvision\.datasets\.NAME", data | {"of": "os.system"}
    )
    download = data | {"arguments": {"root": "x", "download": True}}
    refused(r"found download; allowed: data that are on this machine", download)
    refused(
        r"found no 'Digit' in torchvision\.datasets",
        data | {"of": "torchvision.datasets.Digit"},
        agents=2,
    )


class Kept(list):
    """As Hugging Face's data sets are: items by the names of columns."""

    column_names = ("image", "label", "speaker")


def test_a_data_set_of_hugging_face(monkeypatch, tmp_path):
    data = {"source": "huggingface", "folder": str(tmp_path), "inputs": "image"}
    data |= {"labels": "label", "columns": ["speaker"], "split": "train", "test_split": "test"}
    refused(r"found no datasets here; allowed: pip install datasets", data, agents=2)
    rows = [
        {"image": np.full((2, 2), k / 10), "label": k % 2, "speaker": "ab"[k % 2]}
        for k in range(10)
    ]
    library = types.ModuleType("datasets")
    library.load_from_disk = lambda folder: {"train": Kept(rows[:7]), "test": Kept(rows[7:])}
    monkeypatch.setitem(sys.modules, "datasets", library)
    problem = problem_of(data, partition={"by": "speaker"})
    assert problem.sites == ("a", "b")
    assert problem.rows.tolist() == [4, 3]
    assert problem.test_A[0][0, 0] == np.float32(0.7)
    refused(
        r"labels: found 'lable'; allowed: image, label, speaker",
        data | {"labels": "lable"},
        agents=2,
    )
    refused(r"split: found 'all'; allowed: train, test", data | {"split": "all"}, agents=2)
