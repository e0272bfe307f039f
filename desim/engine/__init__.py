"""The engines. An algorithm is one source; they know time and messages, and no algorithm."""
