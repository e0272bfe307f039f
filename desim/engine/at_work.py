"""What a job may look at: on every engine the same, and nothing of what time it is.

A job is run when its result is needed, alone or with others, and not at all where a run is told
again under another network. So what is the program's own, its clock and its verbs, is closed to it,
whichever way it got hold of `us` or `hub`.
"""

from typing import Any, Generic, TypeVar

import numpy as np

from desim.arrays import Int

Value = TypeVar("Value")
MAY = (
    "its own us.who and us.round, with a coordinator also us.address, us.noised and the agents' "
    "state, else us.noise_seed; whatever else it needs is an input"
)
PROGRAM = frozenset(  # what `us` and `hub` are in a program
    "clock live gone leaving ended turn speed capacity rounds compute send gather arrived "
    "known sum coded link_weights report perturbation charged above public "
    "now open station calls world invite call collect tell inform publish".split()
)
OWNED = PROGRAM | set(
    "who round degree address release released noised noise_key codec_memory".split()
)


def refused(what: str) -> RuntimeError:
    """The error for a job that looks at `what`, such as us.clock."""
    return RuntimeError(f"{what}: found in a job, which has no time of its own; allowed: {MAY}")


class Rounds(np.ndarray[Any, np.dtype[Any]]):
    """The round (n,) of each agent in a job: an array that refuses to meet rows (n, dim).

    Beside them NumPy would take it for one row of dim numbers wherever there are as many agents as
    parameters, without a word. What follows from it, number by number, does so, too.
    """

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **more: Any
    ) -> Any:
        """What NumPy computes, of numbers or of arrays (n,)."""
        flat = any(isinstance(one, Rounds) and one.ndim == 1 for one in inputs)
        if flat and ufunc.signature is None and any(np.ndim(one) > 1 for one in inputs):
            shape = next(np.shape(one) for one in inputs if np.ndim(one) > 1)
            text = f"found {self.shape}, one for each agent, beside an array {shape}"
            raise ValueError(f"us.round: {text}; allowed: us.round[:, None], or its numbers alone")
        if out is not None:
            more["out"] = tuple(map(_plain, out))
        found = getattr(ufunc, method)(*map(_plain, inputs), **more)
        own = flat and method == "__call__" and out is None and np.ndim(found) == 1
        return found.view(Rounds) if own and isinstance(found, np.ndarray) else found


def _plain(one: Any) -> Any:
    """An array of NumPy's own."""
    return one.view(np.ndarray) if isinstance(one, Rounds) else one


class Rows:
    """`us` of a graph's job: agents who (n,) in their round (n,), and the seed of the noise."""

    who: Int
    round: Rounds
    noise_seed: int

    def __init__(self, who: Int, round_: Int, noise_seed: int) -> None:
        self.__dict__.update(who=who, round=round_.view(Rounds), noise_seed=noise_seed)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise refused(f"us.{name}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise refused(f"us.{name}")


class Outside(Generic[Value]):
    """An attribute of a program's `us` or `hub` that is closed to jobs; label: us or hub."""

    def __init__(self, label: str) -> None:
        self.label = label

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, one: Any, owner: type | None = None) -> Value:
        own = one.__dict__
        if (own.get("_world") or own["world"]).working:
            raise refused(f"{self.label}.{self.name}")
        value: Value = own[self.name]
        return value

    def __set__(self, one: Any, value: Value) -> None:
        one.__dict__[self.name] = value
