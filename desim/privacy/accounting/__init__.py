"""What releases cost: epsilon at delta, for a view and a relation."""
