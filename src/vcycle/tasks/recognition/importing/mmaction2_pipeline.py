"""What the pipelines of MMAction2's configurations say: arguments of their transforms, and the augmentation."""

import math
import re
from typing import Any

from vcycle.tasks.importing import Finding, Source, differs, product, translated

__all__ = ["TEST", "TRAIN", "augmentation", "blending", "erase_fill", "has_step", "jitter", "repeats", "step"]

TRAIN = ("data.train", "train_dataloader.dataset")
TEST = ("data.test", "test_dataloader.dataset")


def step(source: Source, splits: tuple[str, ...], name: str, key: str, default: Any = None) -> Any:
    """An argument of the last transform of that name in the pipeline of a split."""
    found = default
    for split in splits:
        start, end = f"{split}.pipeline[{name}", f".{key}"
        for each, value in source.items():
            if each.startswith(start) and re.fullmatch(rf"(#\d+)?\]{re.escape(end)}", each[len(start) :]):
                found = value
    return found


def has_step(source: Source, splits: tuple[str, ...], name: str) -> bool:
    """Whether the pipeline of a split has a transform of that name."""
    return step(source, splits, name, "type") is not None


def augmentation(source: Source) -> dict[str, Any]:
    """The augmentation of the training pipeline."""
    found: dict[str, Any] = {}
    if step(source, TRAIN, "PytorchVideoWrapper", "op") == "RandAugment":
        for key, name, usual in (("ops", "num_layers", 2), ("magnitude", "magnitude", 9)):
            found[f"augment.randaugment.{key}"] = step(source, TRAIN, "PytorchVideoWrapper", name, usual)
    if has_step(source, TRAIN, "ColorJitter") and step(source, TRAIN, "ColorJitter", "color_space_aug") is None:
        for name, default in (("brightness", 0.5), ("contrast", 0.5), ("saturation", 0.5), ("hue", 0.1)):
            amount = _amount(step(source, TRAIN, "ColorJitter", name, default), center=name != "hue")
            if name == "hue":  # it shifts the hue by 255 × the amount, and its circle has 180
                amount = min(0.5, product(amount, 255 / 180))
            found[f"augment.color_jitter.{name}"] = amount
    if has_step(source, TRAIN, "RandomErasing"):

        def argument(name: str, default: Any) -> Any:
            return step(source, TRAIN, "RandomErasing", name, default)

        aspect = argument("aspect_range", (0.3, 10 / 3))
        aspect = (aspect, 1 / aspect) if isinstance(aspect, int | float) else aspect
        found |= {
            "augment.erasing.probability": argument("erase_prob", 0.5),
            "augment.erasing.area": _rounded(argument("min_area_ratio", 0.02), argument("max_area_ratio", 1 / 3)),
            "augment.erasing.ratio": _rounded(*sorted(aspect)),
            "augment.erasing.fill": "noise" if argument("mode", "const") == "rand" else "mean",
        }
    return found


def _amount(value: Any, *, center: bool) -> float:
    """The largest change within a range of color jitter, of factors around 1 or of shifts around 0."""
    if isinstance(value, int | float):
        return float(value)
    return max(abs(float(end) - int(center)) for end in value)


def _rounded(*values: float) -> list[float]:
    return [float(f"{value:.3g}") for value in values]


def erase_fill(value: Any, source: Source) -> Finding:
    """`RandomErasing.mode`."""
    fill = "normal noise per pixel" if value == "rand" else "sampling.mean"
    return differs(f"vcycle fills with {fill}: augment.erasing.fill")


def jitter(value: Any, source: Source) -> Finding:
    """`brightness`, `contrast`, `saturation` or `hue` of ColorJitter."""
    if isinstance(value, int | float) or math.isclose(sum(value), 2) or sum(value) == 0:
        return translated("augment.color_jitter")
    return differs("vcycle changes colors as much in both directions: augment.color_jitter")


def blending(value: Any, source: Source) -> Finding:
    """`alpha` of a blending that is the only one."""
    kind = source.get("model.data_preprocessor.blending.type")
    kinds = {"MixupBlending": "augment.mixup", "CutmixBlending": "augment.cutmix"}
    return translated(**{kinds[kind]: value}) if kind in kinds else differs("vcycle has mixup and CutMix: augment")


def repeats(value: Any, source: Source) -> Finding:
    """`RepeatAugDataset.num_repeats`."""
    why = (
        f"training.batch and all epochs count clips, {value} times MMAction2's; each clip of a video draws its own "
        "frames too, MMAction2's may share them"
    )
    return differs(why, augment__repeats=value)
