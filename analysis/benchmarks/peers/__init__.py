"""desim beside its peers on the same problem; run `python -m analysis.benchmarks.peers`."""
