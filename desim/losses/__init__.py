"""The door for losses of users."""
