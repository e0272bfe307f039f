"""When: how long messages, computations and calls take, and rows of what happened."""
