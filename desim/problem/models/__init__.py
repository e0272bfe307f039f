"""Models that users bring: the loss of a row is any function of flat parameters and its arrays."""
