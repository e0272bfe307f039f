"""An algorithm and a loss for desim, installed like any package."""
