"""Models of the user's as the loss of a row: any function of flat parameters and a row's arrays."""
