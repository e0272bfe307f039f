"""Random numbers by address, and compiled code."""
