"""Code of several methods: base classes, local training, mixing weights, duals on a graph."""
