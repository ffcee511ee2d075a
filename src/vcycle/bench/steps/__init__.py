"""What a training step takes at every batch shape of a plan, and what whole plans would take."""
