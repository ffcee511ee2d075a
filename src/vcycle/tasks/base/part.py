"""The parts that a task is made of: what they share."""

from abc import ABC
from collections.abc import Callable
from typing import ClassVar, Generic, TypeVar

from vcycle.config.recipe import RecipeBase
from vcycle.tasks.base.splits import F

__all__ = ["F", "Part", "Progress", "R"]

Progress = Callable[[str, int, int], None]
"""Called with the name of the operation, the number of items done, and the total."""

R = TypeVar("R", bound=RecipeBase)


class Part(ABC, Generic[R, F]):
    """Base class of the parts of a task. The defaults suit simple tasks."""

    name: ClassVar[str]
    """The value of a recipe's `task` key."""
