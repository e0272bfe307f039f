"""Numbers of papers, computed again from scenario files; README.md has all of them."""
