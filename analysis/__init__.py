"""Studies, reproductions and benchmarks that use desim and are not part of it."""
