"""One file for each command: what it takes, and the call of the Python interface that it is."""
