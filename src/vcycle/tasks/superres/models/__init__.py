"""Video super-resolution networks: frames ``(B, T, 3, H, W)`` of values in 0..1, RGB, in; four times the size out."""
