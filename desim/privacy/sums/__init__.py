"""Sums of whole numbers that nobody sees the parts of: numbers, accounts, messages.

They stand here because what they are for is the account; no engine is needed to compute them.
"""
