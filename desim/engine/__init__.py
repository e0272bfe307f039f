"""The two engines. An algorithm is one source; the engines know time and messages, no algorithm."""
