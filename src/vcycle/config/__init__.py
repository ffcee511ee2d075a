"""Recipes: composed over their bases, overridden, each key with where it came from."""
