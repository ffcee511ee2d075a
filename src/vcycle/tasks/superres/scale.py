"""The factor that the networks of super-resolution enlarge by, and the quality of the videos written."""

__all__ = ["CRF", "SCALE"]

SCALE = 4
"""Output pixels to an input pixel, along a side: of every network here."""

CRF = 17
"""H.264 quality of an upscaled video, by default: it looks lossless."""
