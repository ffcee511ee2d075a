"""The factor that the networks of super-resolution enlarge by."""

__all__ = ["SCALE"]

SCALE = 4
"""Output pixels to an input pixel, along a side: of every network here."""
