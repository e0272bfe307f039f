"""The documentation: `sphinx-build -W analysis/docs analysis/docs/_build` makes it."""
