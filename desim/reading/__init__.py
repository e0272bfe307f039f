"""What the log says about time: who waited for whom, who was busy, what the links carried."""
