"""Data for super-resolution: degradations, stores of frames, the benchmarks' layouts, paired crops."""
