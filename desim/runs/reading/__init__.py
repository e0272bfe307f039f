"""What a run stored, read for people: facts, waits, traffic, who was busy."""
