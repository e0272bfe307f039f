"""A run that moves: one HTML file to play it in, and a page that watches it while it plays."""
