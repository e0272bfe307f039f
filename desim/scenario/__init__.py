"""From a scenario file to a checked, frozen `Scenario`, and from there to a simulation."""
