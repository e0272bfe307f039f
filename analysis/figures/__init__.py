"""Figures of the README; each is a module that draws it."""
