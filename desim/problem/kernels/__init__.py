"""Pure numeric functions on arrays: no scenario, no time, no state."""
