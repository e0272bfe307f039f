"""Flower apps, played unmodified under desim's clock: the seam is Flower's own Grid."""
