"""The engine that plays blocks of rounds in compiled code, for methods that give formulas."""
