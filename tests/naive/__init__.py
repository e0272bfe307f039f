"""The papers once more, as plain NumPy loops: the oracles. Nothing here imports desim."""
