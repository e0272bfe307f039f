"""Questions that no paper answers; README.md has the answers."""
