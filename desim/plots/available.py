"""Figures need an extra: this is imported before whatever imports matplotlib."""

from desim.errors import require

require("figures", "matplotlib", "plot")
