"""What links and devices are, by what was measured: the way back from seconds to a scenario."""
