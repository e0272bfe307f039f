"""What the environment says of compiling and threads, looked at before anything is begun."""

import os

from desim.numerics.jit import threads
from desim.numerics.plain import when


def environment() -> None:
    """InputError for what DESIM_COMPILE and DESIM_THREADS say and nobody understands."""
    when()
    threads()


# How many processes may work at once.


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
