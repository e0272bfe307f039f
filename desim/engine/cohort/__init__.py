"""The engine that plays a round of all agents as one step."""
