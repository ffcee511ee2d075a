"""Names of plans, checked before any data is looked for. Needs no torch."""

from collections.abc import Iterable

from vcycle.tasks.recipes import AnyRecipe
from vcycle.tasks.recognition import plans as recognition
from vcycle.tasks.superres import plans as superresolution
from vcycle.tasks.superres.recipe import SuperresRecipe

__all__ = ["check_plan_names"]


def check_plan_names(recipe: AnyRecipe, names: Iterable[str]) -> None:
    """Check that the recipe's task has plans of these names.

    Raises:
        RecipeError: for the first that it has not, naming those that there are.
    """
    check = superresolution.check_name if isinstance(recipe, SuperresRecipe) else recognition.check_name
    for name in names:
        check(name)
