"""Pretrained weights of recognition, under any library's names."""
