"""Chooses a plan for a recipe: measured steps, bounds from the benchmarks, and a short pilot."""
