"""Records of Python's `logging`: desim's loggers, which say nothing unless somebody listens.

run        how a run is played and how it ended; warnings while it plays
compile    kernels that are compiled (info), or read from where they are kept (debug)
trackers   what a tracker could not write
"""

import logging

logging.getLogger("desim").addHandler(logging.NullHandler())


def logger(name: str) -> logging.Logger:
    """The logger desim.NAME."""
    return logging.getLogger(f"desim.{name}")
