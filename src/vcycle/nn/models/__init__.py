"""The networks: ``(B, C, T, H, W)`` in, logits ``(B, classes)`` out, at any shape that they can take."""
