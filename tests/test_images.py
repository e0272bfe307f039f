"""Images: idx files, npz files, their own test rows, and what is refused."""

import gzip
import struct

import numpy as np
import pytest
from mutant import mutant
from sections import made

from desim.errors import InputError
from desim.problem.data import images

KEYS = {"agents": 2, "partition": "contiguous", "positive": [1]}


def arrays(rows=(6, 4)):
    random = np.random.default_rng(0)
    parts = {}
    for name, n in zip(("train", "test"), rows, strict=True):
        parts[f"x_{name}"] = random.integers(0, 256, (n, 2, 3)).astype(np.uint8)
        parts[f"y_{name}"] = (np.arange(n) % 3).astype(np.uint8)
    return parts


def idx(array, kind=8, order=">"):
    head = struct.pack(f"{order}HBB{array.ndim}I", 0, kind, array.ndim, *array.shape)
    return head + array.tobytes()


def folder(path, parts, compressed=()):
    for name, file in images.FILES.items():
        content = idx(parts[name])
        if name in compressed:
            (path / f"{file}.gz").write_bytes(gzip.compress(content))
        else:
            (path / file.replace("-idx", ".idx" if name == "y_test" else "-idx")).write_bytes(
                content
            )
    return {"source": "mnist-idx", "folder": str(path), **KEYS}


def npz(path, parts):
    np.savez(path / "x.npz", **parts)
    return {"source": "mnist-npz", "file": str(path / "x.npz"), **KEYS}


def test_idx_and_npz_hold_the_same(tmp_path):
    parts = arrays()
    found = made(**npz(tmp_path, parts))
    assert np.array_equal(found.A, parts["x_train"].reshape(6, 6) / 255)
    assert np.array_equal(found.test_A, parts["x_test"].reshape(4, 6) / 255)
    assert found.b.tolist() == [-1, 1, -1, -1, 1, -1]
    assert found.test_b.tolist() == [-1, 1, -1, -1]
    assert found.start.tolist() == [0, 3, 6]
    read = made(**folder(tmp_path, parts, compressed=("x_train", "y_train")))
    for mine, other in zip(read, found, strict=True):
        assert np.array_equal(mine, other)
    raw = made(**npz(tmp_path, parts), scale="none", intercept=True)
    assert np.array_equal(raw.A[:, 1:], parts["x_train"].reshape(6, 6))


def test_so_many_rows(tmp_path):
    keys = {**npz(tmp_path, arrays((60, 40))), "partition": "iid"}
    found = made(**keys, train=20, test={"rows": 10})
    whole = made(**keys)
    assert (len(found.b), len(found.test_b)) == (20, 10)
    assert {tuple(row) for row in found.A} <= {tuple(row) for row in whole.A}
    assert {tuple(row) for row in found.test_A} <= {tuple(row) for row in whole.test_A}
    assert len(whole.test_b) == 40
    by_label = made(**{**keys, "partition": {"labels": 2}}, train=30)
    assert len(by_label.b) == 30


def test_mnist(shared):
    parts = np.load(shared / "data" / "mnist.npz")
    found = made(
        source="mnist-npz", file=str(shared / "data" / "mnist.npz"), agents=10, train=1000,
        test={"rows": 50}, positive=[5, 6, 7, 8, 9],
    )  # fmt: skip
    assert found.A.shape == (1000, 784)
    assert found.A.max() == 1.0
    tested = parts["x_test"], parts["y_test"]
    known = {image.tobytes(): label for image, label in zip(*tested, strict=True)}
    for row, label in zip(found.test_A, found.test_b, strict=True):
        image = np.rint(row * 255).astype(np.uint8).tobytes()
        assert label == (1.0 if known[image] >= 5 else -1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x_train": None}, "x.npz has no array x_train; found y_train, x_test, y_test"),
        ({"y_train": np.zeros(5, np.uint8)}, r"x_train \(6, 2, 3\) and y_train \(5,\)"),
        ({"x_test": np.zeros((4, 3, 3), np.uint8)}, r"x_test \(4, 3, 3\).*images of one size"),
        ({"x_test": np.zeros((0, 2, 3)), "y_test": np.zeros(0)}, r"x_test \(0, 2, 3\)"),
        ({"x_train": np.full((6, 2, 3), np.nan)}, "pixel 0 of image 0 is not finite"),
        ({"y_test": np.array([{}] * 4, object)}, "without pickled objects"),
        ({"y_test": np.array(["a"] * 4)}, "y_test holds <U1; allowed: real numbers"),
    ],
)
def test_wrong_npz_is_explained(tmp_path, change, message):
    parts = {name: part for name, part in {**arrays(), **change}.items() if part is not None}
    with pytest.raises(InputError, match=message):
        made(**npz(tmp_path, parts))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "found no t10k-labels-idx1-ubyte or t10k-labels-idx1-ubyte.gz in"),
        (b"", "cannot be read as idx"),
        (b"\x00\x00\x08", "cannot be read as idx"),
        (b"\x00\x00\x08\x01\x00\x00", "cannot be read as idx"),
        (b"PK\x03\x04 and so on", "is no idx file: it begins with 50 4b 03 04"),
        (b"\x00\x00\x07\x01\x00\x00\x00\x00", "is no idx file"),
        (idx(np.arange(4, dtype=np.uint8))[:-1], r"found 3 bytes of values; allowed: 4 for \(4,\)"),
        (idx(np.arange(4, dtype=np.uint8), order="<"), "is no idx file|bytes of values"),
    ],
)
def test_wrong_idx_is_explained(tmp_path, content, message):
    keys = folder(tmp_path, arrays())
    file = tmp_path / "t10k-labels.idx1-ubyte"
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError, match=message):
        made(**keys)


def test_other_idx_types_are_read(tmp_path):
    keys, file = folder(tmp_path, arrays()), tmp_path / "t10k-labels.idx1-ubyte"
    for kind, dtype in images.DTYPES.items():
        file.write_bytes(idx(np.array([0, 1, 2, 0], dtype), kind))
        assert made(**keys).test_b.tolist() == [-1, 1, -1, -1]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('f">{axes}I"', 'f"<{axes}I"'),
        ("x.reshape(len(x), -1)", "x.reshape(len(x), -1)[::-1]"),
        (">= len(x_train)", "< len(x_train)"),
    ],
)
def test_wrong_readers_are_noticed(tmp_path, right, wrong):
    parts = arrays()
    keys = folder(tmp_path, parts)
    whole = type("All", (), {"kind": "all"})()
    given = {"source": "mnist-idx", "folder": tmp_path, "test": whole, "train": None}

    def check(module):
        table = module.read_images(type("S", (), given)(), 0)
        assert np.array_equal(table.A[table.train], parts["x_train"].reshape(6, 6))
        assert np.array_equal(table.labels[table.test], parts["y_test"])

    assert keys["source"] == "mnist-idx"
    check(images)
    with pytest.raises((AssertionError, InputError)):
        check(mutant(images, right, wrong))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"test": 0.2}, "test"),
        ({"test": "some"}, "allowed: all, {rows: ...}"),
        ({"folder": "nowhere"}, "which does not exist"),
        ({"folder": "x.npz"}, "which is a file"),
        ({"folder": None}, "missing"),
    ],
)
def test_wrong_sections_are_explained(tmp_path, keys, message):
    npz(tmp_path, arrays())
    keys = {**folder(tmp_path, arrays()), **keys}
    if keys["folder"] in ("nowhere", "x.npz"):
        keys["folder"] = str(tmp_path / keys["folder"])
    with pytest.raises(ValueError, match=f"(?s){message}"):
        made(**{key: value for key, value in keys.items() if value is not None})
