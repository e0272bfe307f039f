"""What several methods share: base classes, local training, mixing weights, duals on a graph."""
