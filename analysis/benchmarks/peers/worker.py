"""What every contestant does, in its own interpreter: solve the problem, then time when told to.

Imports nothing but numpy, because it runs in every environment. Arguments: problem file, rounds of
the check, rounds of a turn, processors. One JSON line with the models after the check, one for each
turn that a line on stdin asks for: wall seconds and processor seconds.
"""

import contextlib
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np


class Problem(NamedTuple):
    """Fed-PLT on f_i(x) = mean_h log(1 + exp(-b_ih a_ih.x)) + (weight/2) ||x||^2, from x = z = 0.

    A (agents, rows, dim), b (agents, rows) of -1 and 1; gamma: local step; rho: penalty; epochs:
    local steps of a round.
    """

    A: Any
    b: Any
    weight: float
    gamma: float
    rho: float
    epochs: int


Run = Callable[[int], Any]  # rounds -> models (agents, dim)


def read(path: str) -> Problem:
    """The problem of a file."""
    with np.load(path) as file:
        kept = {name: file[name] for name in Problem._fields}
    plain = {name: kept[name].item() for name in ("weight", "gamma", "rho", "epochs")}
    return Problem(**{**kept, **plain})


def serve(make: Callable[[Problem], Run], packages: tuple[str, ...]) -> None:
    """Take the turns of what make(problem) readies; packages: whose versions are told."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is not an answer
    path, check, rounds, processors = sys.argv[1:5]
    with contextlib.suppress(AttributeError, OSError):
        os.sched_setaffinity(0, {int(one) for one in processors.split(",")})
    run = make(read(path))
    models = np.asarray(run(int(check)), float)
    run(int(rounds))  # compiles what depends on the number of rounds

    def answer(value: Any) -> None:
        out.write(json.dumps(value) + "\n")
        out.flush()

    found = {one: version(one) for one in packages}
    answer({"models": models.tolist(), "versions": {"python": platform.python_version(), **found}})
    for _ in sys.stdin:
        began, busy = time.perf_counter(), time.process_time()
        run(int(rounds))
        answer([time.perf_counter() - began, time.process_time() - busy])
