"""The log of a run: rows while they are written, and tables afterwards."""
