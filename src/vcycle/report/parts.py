"""Colors of the parts of a training step. No plan has them, so that a color means one thing in all figures."""

__all__ = ["COMPUTING", "PART_COLORS", "RATE", "WAITING"]

PART_COLORS = {"forward": "#5c4a32", "backward": "#b59f7a", "optimizer": "#e3d6bc"}
COMPUTING = PART_COLORS["backward"]
"""All of them together."""
WAITING = "#b02a37"
"""Waiting for data."""
RATE = "#44506e"
"""A ratio of speed and work."""
