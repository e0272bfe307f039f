"""Real processes that speak TCP play the same methods, on the machine's own clock."""
