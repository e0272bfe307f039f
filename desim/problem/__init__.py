"""Data, losses and regularisers of all agents: the problem, and its optimum."""
