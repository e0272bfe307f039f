"""The types of arrays that most files name."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Int = NDArray[np.int64]
Mask = NDArray[np.bool_]
