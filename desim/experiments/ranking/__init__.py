"""How far an order of methods by time can be trusted: other networks, other devices, same runs."""
