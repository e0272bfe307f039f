"""Speed, measured as ratios in one process; run `python -m analysis.benchmarks.engines`."""

import os

os.environ.setdefault("DESIM_COMPILE", "at-once")  # no turn is plain Python
