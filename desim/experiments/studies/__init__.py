"""Studies: many runs of one scenario, what each came to, and what that says about their cases."""
