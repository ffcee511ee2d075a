"""Classes of unequal size: weights in the loss, and balanced sampling."""

from collections import Counter
from typing import TYPE_CHECKING

from vcycle.data.layouts import VideoList
from vcycle.errors import RecipeError, did_you_mean
from vcycle.tasks.classification.recipe import ClassificationRecipe

if TYPE_CHECKING:
    from vcycle.data import Balance

__all__ = ["balance_of", "balance_words", "check_balance", "class_weights_of"]


def check_balance(recipe: ClassificationRecipe, videos: VideoList) -> None:
    """Check that a recipe's class weights and balanced sampling fit its training items. Imports no torch.

    Raises:
        RecipeError: if they do not.
    """
    weights, balanced = recipe.training.class_weights, recipe.sampling.balanced
    for key, value in (("training.class_weights", weights), ("sampling.balanced", balanced)):
        if value and videos.multi_label:
            raise RecipeError(f"{key}: needs one class per item, but the items have any number of labels")
    if weights == "balanced" and balanced:
        raise RecipeError(
            "training.class_weights=balanced and sampling.balanced both make up for classes of unequal size: keep one"
        )
    for name in weights if isinstance(weights, dict) else ():
        if name not in videos.classes:
            hint = did_you_mean(name, videos.classes)
            raise RecipeError(f"training.class_weights: {videos.source} has no class {name!r}{hint}")


def class_weights_of(recipe: ClassificationRecipe, videos: VideoList) -> tuple[float, ...] | None:
    """The weight of each class in the training loss; None if all are 1.

    Balanced weights are N / (C · n) for a class with n of N items, where C classes have any; 0 for one without.
    """
    wanted = recipe.training.class_weights
    if wanted is None:
        return None
    if wanted != "balanced":
        return tuple(wanted.get(name, 1.0) for name in videos.classes)
    counts = Counter(videos.labels)
    return tuple(
        len(videos) / (len(counts) * counts[label]) if counts[label] else 0.0 for label in range(len(videos.classes))
    )


def balance_of(recipe: ClassificationRecipe, videos: VideoList) -> "Balance | None":
    """Balanced sampling of the classes; None if each item is drawn once per epoch."""
    strength = float(recipe.sampling.balanced)
    if not strength:
        return None
    from vcycle.data import Balance

    return Balance(videos.labels, strength)


def balance_words(recipe: ClassificationRecipe, videos: VideoList, item: str) -> str | None:
    """Describe balanced sampling: how often items of the smallest and largest class come in an epoch."""
    strength = float(recipe.sampling.balanced)
    if not strength:
        return None
    import numpy as np

    from vcycle.data.balance import quotas_of

    counts = np.bincount(videos.labels)
    quotas = quotas_of(counts, strength)
    present = np.flatnonzero(counts).tolist()
    shown = ", ".join(
        f"{videos.classes[group]} ({counts[group]:,} {item}s) {quotas[group]:,} times"
        for group in (min(present, key=counts.__getitem__), max(present, key=counts.__getitem__))
    )
    return f"sampling.balanced={strength:g}: in an epoch of {len(videos):,} clips: {shown}"
