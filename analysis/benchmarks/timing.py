"""Fair timing: alternatives take turns in one process, and the minimum and median are kept."""

import statistics
import time
from collections.abc import Callable
from typing import Any


def interleaved(
    alternatives: dict[str, Callable[[], Any]], repeats: int = 7
) -> dict[str, tuple[float, float]]:
    """Minimum and median wall seconds of each alternative over `repeats` turns after a warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in alternatives}
    for turn in range(repeats + 1):
        for name, call in alternatives.items():
            began = time.perf_counter()
            call()
            if turn:
                seconds[name].append(time.perf_counter() - began)
    return {name: (min(all_), statistics.median(all_)) for name, all_ in seconds.items()}


def machine() -> str:
    """Processor, cores, Python and numba: what the numbers belong to."""
    import os
    import platform

    import numba

    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as info:
            models = [line.split(":")[1].strip() for line in info if line.startswith("model name")]
        name = models[0] if models else name
    except OSError:
        pass
    python = platform.python_version()
    return f"{name}, {os.cpu_count()} cores, Python {python}, numba {numba.__version__}"
