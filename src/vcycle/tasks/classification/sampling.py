"""How a recipe samples and augments clips: grids, augmentation, and regularisation that grows with the size."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vcycle.tasks.classification.recipe import ClassificationRecipe

if TYPE_CHECKING:
    import torch

    from vcycle.data import GridSampler

__all__ = ["Strength", "augmentation_of", "grids_of", "strength_of"]


@dataclass(frozen=True)
class Strength:
    """The strength of the regularisation at a side in pixels, as a share of that at full size.

    Linear in the side, as the stages of progressive learning are (Tan and Le 2021, algorithm 1): a function of the
    step's shape alone, so a resume needs no state.

    Example:
        >>> strength = Strength(full=224, at_half=0.4)
        >>> [round(strength(side), 2) for side in (56, 112, 168, 224, 256)]
        [0.1, 0.4, 0.7, 1.0, 1.0]
    """

    full: int
    """The baseline's side in pixels."""
    at_half: float
    """The strength at half of it."""

    def __call__(self, side: int) -> float:
        """The strength at a side, 0 to 1."""
        return min(1.0, max(0.0, 1 - 2 * (1 - self.at_half) * (1 - side / self.full)))


def strength_of(recipe: ClassificationRecipe) -> Strength | None:
    """The recipe's strength by side; None if it is the same at every size."""
    at_half = recipe.augment.strength_at_half
    return None if at_half == 1 else Strength(recipe.training.size, at_half)


def grids_of(recipe: ClassificationRecipe) -> "GridSampler":
    """The recipe's clip sampler."""
    from vcycle.data import GridSampler

    options = recipe.sampling.model_dump(exclude={"mean", "std", "balanced"})
    return GridSampler(frames=recipe.shape.frames, size=recipe.shape.size, **options)


def augmentation_of(recipe: ClassificationRecipe) -> "Callable[[torch.Tensor], torch.Tensor] | None":
    """The augmentation of training clips; None if there is none."""
    wanted, mean, strength = recipe.augment, recipe.sampling.mean, strength_of(recipe)
    if wanted.randaugment is None and wanted.color_jitter is None and wanted.erasing is None:
        return None
    from vcycle.data.augment import ClipAugment, ClipErasing, ClipJitter, chained

    transforms: list[Callable[[torch.Tensor], torch.Tensor]] = []
    if wanted.randaugment is not None:
        transforms.append(ClipAugment(**wanted.randaugment.model_dump(), fill=mean, strength=strength))
    if wanted.color_jitter is not None:
        transforms.append(ClipJitter(**wanted.color_jitter.model_dump(), strength=strength))
    if wanted.erasing is not None:
        std = recipe.sampling.std
        transforms.append(ClipErasing(**wanted.erasing.model_dump(), mean=mean, std=std, strength=strength))
    return chained(transforms)
