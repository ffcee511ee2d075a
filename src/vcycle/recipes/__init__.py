"""Recipes: a whole training in one YAML file, checked before anything runs."""

from vcycle.recipes.load import dump_recipe, load_recipe, recipe_names, recipe_text
from vcycle.recipes.schema import Recipe

__all__ = ["Recipe", "dump_recipe", "load_recipe", "recipe_names", "recipe_text"]
