"""One file for each section of a scenario: keys, defaults, and what it is built into."""
