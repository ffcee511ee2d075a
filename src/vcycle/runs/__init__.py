"""A run over any task: train, evaluate, open, resume, export."""
