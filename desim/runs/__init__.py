"""Runs: a scenario played into a directory or into memory, and what is read from one later."""
