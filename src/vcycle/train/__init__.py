"""The loop that carries a plan out, and what makes it survive: checkpoints, journals, logs."""
