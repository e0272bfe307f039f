"""Who is connected to whom, and by which links."""
