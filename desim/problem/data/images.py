"""Images and their labels: MNIST's idx files (LeCun et al. 1998), and Keras' npz of the same."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.errors import InputError
from desim.problem.data.split import split
from desim.problem.data.table import Table
from desim.readers import content, npz_arrays, reading

PARTS = ("x_train", "y_train", "x_test", "y_test")
FILES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}
DTYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def read_images(section: Any, seed: int) -> Table:
    """The table of a source of images: every image one row of pixels, those to test on last."""
    idx = section.source == "mnist-idx"
    parts = _idx_parts(section.folder) if idx else _npz_parts(section.file)
    x_train, y_train, x_test, y_test = parts
    where = f"problem.data.{'folder' if idx else 'file'}"
    for name, x, y in (("train", x_train, y_train), ("test", x_test, y_test)):
        if x.ndim < 2 or y.shape != x.shape[:1] or x.shape[1:] != x_train.shape[1:] or 0 in x.shape:
            raise InputError(
                f"{where}: found x_{name} {x.shape} and y_{name} {y.shape}; allowed: "
                "(rows, height, width) or (rows, pixels), as many labels, and images of one size"
            )
    A = np.concatenate([x.reshape(len(x), -1) for x in (x_train, x_test)])
    for row, pixel in np.argwhere(~np.isfinite(A))[:1] if A.dtype.kind == "f" else ():
        raise InputError(f"{where}: pixel {pixel} of image {row} is not finite")
    labels = np.concatenate([y_train, y_test])
    own = np.arange(len(A)) >= len(x_train)
    names = tuple(f"x{pixel}" for pixel in range(A.shape[1]))
    train, test = split(section, {}, len(A), seed, own)
    size = x_train.shape[1:]
    shape = (1, *size) if len(size) == 2 else size
    return Table(A, labels, names, {"label": labels}, train, test, shape=shape)


def _npz_parts(file: Path) -> list[NDArray[Any]]:
    """The four arrays of an npz file; pickles are refused."""
    where = f"problem.data.file: {file.name}"
    parts = npz_arrays(
        file, "problem.data.file", PARTS, f"numbers without pickled objects in {', '.join(PARTS)}"
    )
    for name, part in parts.items():
        if part.dtype.kind not in "fiub":
            raise InputError(f"{where}: {name} holds {part.dtype}; allowed: real numbers")
    return list(parts.values())


def _idx_parts(folder: Path) -> list[NDArray[Any]]:
    """The four arrays of a folder of idx files, compressed or not."""
    return [_idx(_file(folder, FILES[part])) for part in PARTS]


def _file(folder: Path, name: str) -> Path:
    """The file of that name, also spelt with a dot before idx, also compressed."""
    for spelt in (name, name.replace("-idx", ".idx")):
        for file in (folder / spelt, folder / f"{spelt}.gz"):
            if file.is_file():
                return file
    raise InputError(f"problem.data.folder: found no {name} or {name}.gz in {folder}")


def _idx(file: Path) -> NDArray[Any]:
    """The array of an idx file: zeros, type, number of axes, big-endian sizes, then the values."""
    where = f"problem.data.folder: {file.name}"
    allowed = "zeros, type, number of axes, sizes, values, as MNIST's files"
    whole = content(file, "problem.data.folder", "idx", allowed)
    with reading(file, "problem.data.folder", "idx", allowed):
        zero, kind, axes = struct.unpack(">HBB", whole[:4])
        if zero or kind not in DTYPES or not axes:
            raise InputError(f"{where} is no idx file: it begins with {whole[:4].hex(' ')}")
        shape = struct.unpack(f">{axes}I", whole[4 : 4 + 4 * axes])
    dtype, body = np.dtype(DTYPES[kind]), whole[4 + 4 * axes :]
    due = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if len(body) != due:
        raise InputError(f"{where}: found {len(body)} bytes of values; allowed: {due} for {shape}")
    return np.frombuffer(body, dtype).reshape(shape)
