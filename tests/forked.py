"""Processes of studies that are forked off one that has loaded desim, where many are needed.

What a new one does is seen where a script, a command, or a study of two processes begins.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import active_children, forkserver, get_context
from types import SimpleNamespace

import psutil
import pytest

from desim.experiments import pool
from desim.runs import processes

LOADED = [
    "desim.experiments.studies.work", "desim.experiments.ranking.worlds",
    "desim.engine.compiled.star", "desim.methods.fed_plt", "scipy.optimize", "sklearn.datasets",
]  # fmt: skip


@contextmanager
def forked() -> Iterator[None]:
    """A context in which a process takes a tenth of the time to begin; at its end all are gone.

    But for the one that they are forked off, which the next context uses too.
    """
    several = get_context("forkserver")
    several.set_forkserver_preload(LOADED)
    with pytest.MonkeyPatch.context() as patch:
        there = SimpleNamespace(get_context=lambda _: several, active_children=active_children)
        for one in (pool, processes):
            patch.setattr(one, "multiprocessing", there)
        yield
        server = psutil.Process(forkserver._forkserver._forkserver_pid)
        assert not [one for one in server.children() if one.status() != psutil.STATUS_ZOMBIE]
