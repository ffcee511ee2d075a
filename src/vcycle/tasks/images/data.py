"""The images of a recipe. Needs no torch."""

from pathlib import Path

from vcycle.data.layouts import VideoList, read_folder
from vcycle.data.layouts.files import PICTURES, accepted
from vcycle.data.layouts.folder import folder_splits
from vcycle.data.layouts.splits import SPLITS, WHOLE
from vcycle.errors import DataError, RecipeError
from vcycle.tasks.base import Progress, Splits
from vcycle.tasks.images.recipe import ImagesRecipe
from vcycle.utils.extras import check_installed

__all__ = ["check_images", "every_image", "find_images"]


def find_images(recipe: ImagesRecipe, work: Path, progress: Progress) -> Splits[VideoList]:
    """Find the recipe's images, or make the embedded set under `work`."""
    data = recipe.data
    if data.digits is not None:
        from vcycle.tasks.images.digits import render_digits

        root = Path(data.path) if data.path else work / "digits"
        render_digits(root, data.digits, lambda done, total: progress("making images", done, total))
        return Splits(lambda split: read_folder(root, split, kind=PICTURES), data.digits.images, source=str(root))
    if data.path is None:
        raise RecipeError("the recipe names no images: give a folder with data=PATH")
    root = Path(data.path)
    if not root.is_dir():
        raise DataError(f"{root}: no such folder; {accepted(PICTURES)}")
    return Splits(
        lambda split: read_folder(root, split, val_fraction=data.val_fraction, kind=PICTURES),
        folder_splits(root) or ("train", "val"),
        source=data.path,
    )


def every_image(recipe: ImagesRecipe, root: Path) -> dict[str, VideoList]:
    """The images of each split in a folder; all of them, where it has none."""
    splits = find_images(recipe, root, lambda *_: None)
    if recipe.data.digits is None and not folder_splits(root):
        return {WHOLE: read_folder(root, "train", val_fraction=0, kind=PICTURES)}
    return {split: splits[split] for split in SPLITS if split in splits}


def check_images(recipe: ImagesRecipe, splits: Splits[VideoList]) -> None:
    """Check that a recipe can be trained on its images.

    Raises:
        RecipeError: if it cannot.
        DataError: if the images are all of one class.
    """
    if len(splits.classes) < 2:
        raise DataError(f"data.path {recipe.data.path}: its images are of {len(splits.classes)} class: 2 are needed")
    if recipe.training.precise_bn is not None and recipe.training.freeze != "none":
        raise RecipeError(
            f"training.precise_bn={recipe.training.precise_bn}: training.freeze={recipe.training.freeze} keeps "
            "BatchNorm's statistics as they are; null is accepted"
        )
    if (asked := recipe.augment.needing_torchvision) is not None:
        check_installed("torchvision", f"augment.{asked} needs")
