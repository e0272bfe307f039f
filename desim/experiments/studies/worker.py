"""What a local worker process does: light to import, so that it can settle its threads first."""

import os
import signal
from multiprocessing.connection import Connection

THREADS = ("DESIM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def serve(jobs: Connection) -> None:
    """Do jobs as they come until there are no more, or nobody who waits for them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that waits
    os.environ |= dict.fromkeys(THREADS, "1")  # before numpy and numba: one core for each process
    from desim.experiments.studies.work import carry_out

    try:
        jobs.send("ready")
        while (job := jobs.recv()) is not None:
            jobs.send(carry_out(job))
    except (EOFError, OSError):
        return
