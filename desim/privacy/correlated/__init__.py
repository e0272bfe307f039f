"""Noise of a coordinator that is correlated over rounds: matrix mechanisms, and their price."""
