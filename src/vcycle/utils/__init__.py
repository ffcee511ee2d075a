"""Utilities for files, locks and processes, used by every package."""
