"""Reads weight files without executing them, matches tensors by name, and loads all of them or fails."""
