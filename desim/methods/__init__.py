"""The methods, one file each: the paper's pseudocode, equation lines ending with their number."""
