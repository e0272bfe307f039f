"""`desim tune`: which values of keys reach a target with least, by races on common seeds."""

# What becomes of candidates; the best come first.
RACING, DROPPED, MISSED, INVALID, BEST, FRONT, LEVEL, OPEN = (
    "racing", "dropped", "infeasible", "invalid", "best", "front", "within noise", "not decided",
)  # fmt: skip
ORDER = (BEST, FRONT, LEVEL, OPEN, DROPPED, MISSED, INVALID)
