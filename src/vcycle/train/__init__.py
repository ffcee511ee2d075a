"""Trains a model under a plan: training loop, checkpoints, journals, logs."""
