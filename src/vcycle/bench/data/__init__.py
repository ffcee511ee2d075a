"""Data benchmark: clips per second from original and prepared videos, and through the loader."""
