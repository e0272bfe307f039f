"""How far desim's seconds hold: against the kernel's own TCP, and against ns-3."""
