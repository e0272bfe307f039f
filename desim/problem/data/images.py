"""Images with labels: MNIST's idx files (LeCun et al. 1998), Keras' npz of these, and folders."""

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.errors import InputError, raised, shortened
from desim.problem.data.table import Table, split
from desim.problem.models.user_model import Examples
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


# Folders whose names say what is in them: classes, users, training and testing.
WHERE = "problem.data.folder"
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
TOPS = {"train", "test"}
GRAY = ("1", "L", "LA")  # Pillow's names of images with one channel, but for transparency
COLOURS = (*GRAY, "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV", "LAB")
SHOWN = {1: "L", 3: "RGB"}  # by channels


def image_folders(section: Any) -> Examples:
    """All images below section.folder, uint8 (rows, channels, height, width), in memory.

    section.levels names the folders on the way to an image, `class` among them; the others are
    columns. Folders train and test, and nothing else, may stand above all of these.
    """
    folder, levels = section.folder, list(section.levels)
    tops = {one.name for one in _folders(folder, folder)}
    parted = tops == TOPS and levels[0] != "split"
    files = list(_images(folder, folder, ["split", *levels] if parted else levels))
    names = [file.relative_to(folder).parts[:-1] for file in files]
    columns = {
        level: np.array([one[place + parted] for one in names])
        for place, level in enumerate(levels)
    }
    inputs = _pixels(files, section)
    test = np.array([one[0] == "test" for one in names]) if parted else None
    labels = columns["class"]
    whole = all(one.isascii() and one.isdigit() for one in np.unique(labels))
    return Examples(inputs, labels.astype(int) if whole else labels, columns, test)


def _images(folder: Path, top: Path, levels: Sequence[str]) -> Iterator[Path]:
    """Files of images so many folders below, in the order of their names."""
    if levels:
        for one in _folders(folder, top, levels[0]):
            yield from _images(one, top, levels[1:])
        return
    files = sorted(one for one in folder.iterdir() if _shown(one))
    wrong = [one.name for one in files if one.is_dir() or one.suffix.lower() not in SUFFIXES]
    if wrong or not files:
        text = f"found {wrong[0]!r} in" if wrong else "found no image in"
        where = folder.relative_to(top)
        allowed = f"images ({', '.join(one[1:] for one in SUFFIXES)}), one or more"
        raise InputError(f"{WHERE}: {text} {where}; allowed: {allowed}; problem.data.levels names "
                         "the folders on the way to them")  # fmt: skip
    yield from files


def _folders(folder: Path, top: Path, level: str = "class") -> list[Path]:
    """The folders in a folder, which holds nothing else."""
    if not folder.is_dir():
        raise InputError(f"{WHERE}: {folder} is no directory; allowed: a folder of images")
    inside = sorted(one for one in folder.iterdir() if _shown(one))
    wrong = [one.name for one in inside if not one.is_dir()]
    if wrong or not inside:
        text = f"found {wrong[0]!r}" if wrong else "found nothing"
        where = "" if folder == top else f" in {folder.relative_to(top)}"
        allowed = f"folders, one for each {level} (problem.data.levels)"
        raise InputError(f"{WHERE}: {text}{where}; allowed: {allowed}")
    return inside


def _shown(path: Path) -> bool:
    return not path.name.startswith(".") and path.name not in ("Thumbs.db", "desktop.ini")


def _pixels(files: list[Path], section: Any) -> NDArray[np.uint8]:
    """All images (rows, channels, height, width); InputError where one is not like the first."""
    channels, size, alike = section.channels, section.size, files[0].relative_to(section.folder)
    out: NDArray[np.uint8] | None = None
    for row, file in enumerate(files):
        mode, pixels = _pixels_of(file, channels, size)
        if out is None:
            shape, first = pixels.shape, mode
            out = np.empty((len(files), *shape), np.uint8)
        where = f"{WHERE}: {file.relative_to(section.folder)}"
        if len(pixels) != len(out[0]):
            text = f"{where} is {mode} and {alike} is {first}"
            raise InputError(f"{text}; allowed: images with as many channels, or problem.data."
                             "channels: 1 or 3, to which all are brought")  # fmt: skip
        if pixels.shape != shape:
            found = " x ".join(map(str, pixels.shape[1:]))
            due = " x ".join(map(str, shape[1:]))
            text = f"{where} has {found} pixels and {alike} has {due}"
            raise InputError(f"{text}; allowed: images of one size, or problem.data.size: [height, "
                             "width], to which all are brought")  # fmt: skip
        out[row] = pixels
    assert out is not None
    return out


def _pixels_of(file: Path, channels: int | None, size: Any) -> tuple[str, NDArray[np.uint8]]:
    """Pillow's name of what the image is, and its pixels (channels, height, width)."""
    from PIL import Image

    try:
        with Image.open(file) as opened:
            mode = opened.mode
            if mode not in COLOURS:
                text = f"found {file.name} in mode {mode}"
                raise InputError(f"{WHERE}: {text}; allowed: images of 8 bits a channel")
            image = opened.convert(SHOWN[channels or (1 if mode in GRAY else 3)])
            if size and image.size != size[::-1]:
                image = image.resize(size[::-1], Image.Resampling.BILINEAR)
            pixels = np.asarray(image, np.uint8)
    except InputError:
        raise
    except Exception as error:  # decoders have no exception in common
        why = shortened(raised(error))
        text = f"{file.name} cannot be read as an image ({why})"
        raise InputError(f"{WHERE}: {text}; allowed: whole image files") from None
    return mode, pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)
