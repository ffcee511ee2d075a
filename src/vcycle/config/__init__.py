"""Recipes: merged with their bases and overrides, with the source of each key."""
