"""Trees of coordinators: an edge is a coordinator to its clients, an agent of what is above."""
