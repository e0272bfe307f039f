"""A NumPy model for runs on workers, which can be wrong there in several ways."""

import multiprocessing
import os
import pathlib
import signal

import numpy as np

from desim.model import Model, Strict

THERE = False  # set by tests whose workers are in their own process


class Parameters(Strict):
    fault: str = ""
    """what goes wrong: company, bits, raises, everywhere, first, or a file: a process ends once"""


class Quadratic(Model):
    """(x.a - b)^2 / 2 of each row."""

    name = "shared-quadratic"
    summary = "least squares"
    labels = "numbers"
    Parameters = Parameters

    def initial(self, seed):
        return np.full(self.facts.shape[0], 0.1)

    def loss(self, x, rows):
        return 0.5 * (rows.inputs @ x - rows.labels) ** 2

    def example_gradients(self, x, rows):
        return (rows.inputs @ x - rows.labels)[:, None] * rows.inputs

    def gradients(self, x, rows, clip):
        found, fault = super().gradients(x, rows, clip), self.parameters.fault
        there = THERE or multiprocessing.parent_process() is not None
        if fault == "company":
            return found * (1.0 + 1e-15 * len(x))
        if fault == "bits" and there:
            return found * (1.0 + 1e-12)
        if fault == "everywhere" or (fault == "raises" and there):
            raise ValueError("no gradient today")
        if fault == "first":
            raise ValueError(f"no gradient of the agent whose first label is {rows.labels[0, 0]}")
        if "/" in fault and there and not os.path.exists(fault):
            pathlib.Path(fault).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return found
