"""The door for models and data sets of users: all that such a file needs.

See analysis/docs/howto/data.md; for torch and JAX there are doors of their own, desim.torch and
desim.jax.
"""

from desim.arrays import Array
from desim.errors import InputError
from desim.fields import Count, Flag, NonNegative, Number, Positive, Share, Strict, Text
from desim.losses.plugged import ScalarLoss
from desim.problem.models.user_model import Dataset, Examples, Facts, Model, Rows, clipped_sum

__all__ = [
    "Array", "Count", "Dataset", "Examples", "Facts", "Flag", "InputError", "Model", "NonNegative",
    "Number", "Positive", "Rows", "ScalarLoss", "Share", "Strict", "Text", "clipped_sum",
]  # fmt: skip
