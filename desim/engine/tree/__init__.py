"""Trees of coordinators: each edge is a coordinator to its clients and an agent of what is above."""
