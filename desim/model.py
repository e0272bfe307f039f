"""The door for models of users: all that a model's file needs.

See analysis/docs/howto/model.md; for torch and JAX there are doors of their own, desim.torch and
desim.jax.
"""

from desim.arrays import Array
from desim.errors import InputError
from desim.fields import Count, Flag, NonNegative, Number, Positive, Share, Strict, Text
from desim.losses.plugged import ScalarLoss
from desim.models.model import Facts, Model, Rows, clipped_sum

__all__ = [
    "Array", "Count", "Facts", "Flag", "InputError", "Model", "NonNegative", "Number", "Positive",
    "Rows", "ScalarLoss", "Share", "Strict", "Text", "clipped_sum",
]  # fmt: skip
