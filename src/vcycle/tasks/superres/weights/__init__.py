"""Pretrained weights of super-resolution, under any library's names."""
