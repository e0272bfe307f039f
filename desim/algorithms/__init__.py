"""The methods, one file each: the paper's pseudocode, every equation line ending with its number."""
