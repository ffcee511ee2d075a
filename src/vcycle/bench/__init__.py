"""Measurements: plans compared with their baselines and controls, over seeds, with intervals."""
