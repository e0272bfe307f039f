"""What takes time: links, graphs, devices, and when messages and computations end."""
