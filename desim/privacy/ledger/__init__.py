"""What was released, at which scale, and when it became known."""
