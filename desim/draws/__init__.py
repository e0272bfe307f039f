"""Random numbers by address, and the laws that they follow."""
