"""How far a simulated clock is from a real one: message by message, round by round, and why."""
