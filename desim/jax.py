"""The door for JAX: a function of weights and inputs as a model of a scenario.

It needs jax: the extra desim[jax].
"""

from desim.errors import InputError

try:
    from desim.problem.models.jax_function import JaxModel
except ModuleNotFoundError as lacking:
    if lacking.name not in ("jax", "jaxlib"):
        raise
    text = "desim.jax: found no jax here; allowed: pip install 'desim[jax]'"
    raise InputError(text) from None

__all__ = ["JaxModel"]
