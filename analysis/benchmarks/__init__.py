"""Speed, measured as ratios in one process; run `python -m analysis.benchmarks.engines`."""
