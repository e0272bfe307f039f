"""Records of Python's `logging`: desim's loggers, which say nothing unless somebody listens.

`desim.run` says how a run is played and how it ended, and warnings while it plays; `desim.compile`
which kernels are compiled (info) or read (debug); `desim.trackers` what could not be written;
`desim.workers` which processes ended, and that jobs are too small for them.
"""

import logging

logging.getLogger("desim").addHandler(logging.NullHandler())


def logger(name: str) -> logging.Logger:
    """The logger desim.NAME."""
    return logging.getLogger(f"desim.{name}")
