"""Benchmarks: compares plans with baselines and controls over seeds, and times steps and data loading."""
