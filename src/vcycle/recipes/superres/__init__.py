"""Recipes of super-resolution (Lin et al. 2022): what they may say, and what is built from them."""
