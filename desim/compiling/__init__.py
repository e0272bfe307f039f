"""How code is compiled, kept, watched and imported when it is needed: nothing of learning."""
