"""What every source gives, and the purposes that draws of the stream DATA have."""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Draw(IntEnum):
    """The round of an address in the stream DATA: what the draw decides."""

    GENERATOR = 0
    FEATURES = 1
    NOISE = 2
    TRUTH = 3
    TEST = 4
    SHUFFLE = 5
    SHARES = 6
    OWNERS = 7
    TRAIN = 8
    MEASURED = 9


class Table(NamedTuple):
    """One table: features A (rows, features), raw labels (rows,), and all columns by name.

    train, test: which rows (rows,) are for training and for testing; codes: the label that a name
    stands for, where the source names its labels. A holds any real numbers, and may be (rows, ...),
    as labels for a model may, and both may be Gathered; shape: of what a row of A is, such as
    (channels, height, width) of an image, () for (features,); classes: how many labels there are,
    where the source says so, whatever the rows are; whole: whether whole numbers stay whole for a
    model, such as tokens.
    """

    A: Any
    labels: Any
    names: tuple[str, ...]
    columns: Mapping[str, NDArray[Any]]
    train: NDArray[np.bool_]
    test: NDArray[np.bool_]
    codes: Mapping[str, object] = MappingProxyType({})
    shape: tuple[int, ...] = ()
    classes: int = 0
    whole: bool = False
