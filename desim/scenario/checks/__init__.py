"""What sections have to agree on, one file for each section."""
