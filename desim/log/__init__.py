"""The log: rows while they are written, tables once they are."""
