"""How long messages, computations and calls take, and the rows that say what happened."""
