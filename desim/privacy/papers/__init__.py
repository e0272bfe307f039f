"""What each paper claims about privacy, what is wrong with it, and what holds: one file a method.

Formulas are those of the papers, misprints resolved in the docstrings; `theorems.BOUNDS` is the
table of all of them with view and verdict. Neighbours: one record of one agent is replaced.
Letters: rho zCDP, mu Gaussian DP, eps epsilon, c an RDP curve alpha c, m rows of an agent.
"""
