"""Pure numeric functions on arrays. They know no scenario, no time and no state."""
