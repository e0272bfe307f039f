"""Losses of one number, layered models, regularisers: what is minimised, without data."""
