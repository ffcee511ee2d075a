"""Step benchmark: times a training step at every batch shape, and predicts the training time of plans."""
