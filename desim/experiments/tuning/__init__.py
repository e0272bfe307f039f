"""`desim tune`: which values of keys reach a target with least, by races on common seeds."""
