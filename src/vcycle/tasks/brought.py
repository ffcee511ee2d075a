"""Recipe keys that initial weights bring, such as the mean and standard deviation of their training. Imports no torch.

Weights are the lowest base of a recipe: what they bring is used where neither the recipe nor its bases set the key. It
is read from what lies with the weights (the recipe of a run or an export, the preprocessor's configuration of
transformers), or else known of the model's public weights (`ModelSpec.brings`). Options of the model that no tensor
shows (`ModelSpec.unseen`) come in the same way, from a run, an export or transformers' `config.json`.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vcycle.config.bases import merged
from vcycle.config.recipe import RUN_RECIPE, RecipeBase
from vcycle.errors import CheckpointError, VcycleError
from vcycle.nn.weights.config import config_beside, read_config
from vcycle.tasks.base import tasks
from vcycle.tasks.models import models_of
from vcycle.utils.reading import LONGEST, read_text, read_yaml, safetensors_metadata

__all__ = ["Brought", "brought_by", "options_brought_by", "tell", "tell_options", "with_brought"]

_PREPROCESSORS = ("preprocessor_config.json", "video_preprocessor_config.json", "processor_config.json")
"""Files of transformers beside weights that hold a mean and a standard deviation."""
_NEAR = 0.02
"""Tolerance for differences in the mean and standard deviation of colors, for values in 0..1."""


@dataclass(frozen=True, kw_only=True)
class Brought:
    """Recipe keys that initial weights bring."""

    values: Mapping[str, Any]
    """The value of each dotted key, such as `sampling.mean`."""
    source: str
    """The weights, for messages."""


def with_brought(recipe: RecipeBase, data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """A recipe's data over what its initial weights bring; None if they bring nothing that it does not set.

    Args:
        recipe: The recipe.
        data: What it was read from.

    Raises:
        CheckpointError: as `brought_by` and `options_brought_by`.
    """
    base: dict[str, dict[str, Any]] = {}
    unset = any(not _is_set(recipe, key) for key in tasks[recipe.task].brought)
    if unset and (brought := brought_by(recipe)) is not None:
        for dotted, value in brought.values.items():
            section, _, key = dotted.partition(".")
            base.setdefault(section, {})[key] = _plain(value)
    # Every option that weights can bring is then set, to its default if need be: a run's own recipe asks no weights.
    name, given = recipe.model.name, recipe.model.options
    if left := [key for key in _unseen(recipe) if key not in given]:
        options = options_brought_by(recipe)
        values = {**_read_options(name, recipe.task, given), **({} if options is None else options.values)}
        base["model"] = {"name": name, "options": {key: _plain(values.get(key)) for key in left}}
    return merged(base, data) if base else None


def brought_by(recipe: RecipeBase) -> Brought | None:
    """What a recipe's initial weights bring, whether or not the recipe sets those keys; None for nothing.

    Weights that cannot be read bring nothing: they are refused when they are loaded.

    Raises:
        CheckpointError: if the configuration of a preprocessor beside them is damaged.
    """
    keys = tasks[recipe.task].brought
    if not keys:
        return None
    path = recipe.init.path
    if path is not None and (found := _recorded(Path(path), keys)) is not None:
        return found
    try:
        spec = models_of(recipe.task).find(recipe.model.name)
        options = recipe.model.options
        if path is None and not (spec.downloads is not None and options.get(spec.downloads)):
            return None
        known = spec.brings(spec.read_options(recipe.model.name, options)) if callable(spec.brings) else spec.brings
    except VcycleError:  # an unknown model or option, which is refused with the plan
        return None
    values = {key: value for key, value in known.items() if key in keys}
    return Brought(values=values, source=f"the public weights of {recipe.model.name}") if values else None


def options_brought_by(recipe: RecipeBase) -> Brought | None:
    """Options of a recipe's model, by name, that its initial weights bring, whether or not the recipe sets them.

    Raises:
        CheckpointError: if the configuration beside them is damaged, or the model does not take a value in it.
    """
    if recipe.init.path is None or not (unseen := _unseen(recipe)):
        return None
    name, path = recipe.model.name, Path(recipe.init.path)
    source = f"weights {path}"
    if (text := _recipe_of(path)) is not None:
        model = _mapping(_mapping(_yaml(text)).get("model"))
        held = _mapping(model.get("options")) if model.get("name") == name else {}
        found = {what: held.get(what) for what in unseen}
    elif (file := config_beside(path)) is not None:
        source = f"{source} ({file.name})"
        config = read_config(file)
        found = {what: read(config) for what, read in unseen.items()}
    else:
        return None
    given = {what: value for what, value in found.items() if value is not None}
    try:
        read = _read_options(name, recipe.task, {**recipe.model.options, **given})
    except VcycleError as error:
        raise CheckpointError(f"{source}: {error}") from None
    return Brought(values={what: read[what] for what in given}, source=source) if given else None


def _unseen(recipe: RecipeBase) -> Mapping[str, Callable[[Mapping[str, Any]], Any]]:
    """The options of a recipe's model that its initial weights may bring; none without such weights."""
    if recipe.init.path is None:
        return {}
    name = recipe.model.name
    try:
        unseen = models_of(recipe.task).find(name).unseen
        _read_options(name, recipe.task, recipe.model.options)
    except VcycleError:  # an unknown model or option, which is refused with the plan
        return {}
    return unseen


def tell(recipe: RecipeBase, brought: Brought | None, on_message: Callable[[str], None]) -> None:
    """Say which values a recipe has from its weights, and warn of those that contradict them.

    Args:
        recipe: The resolved recipe.
        brought: What its weights bring.
        on_message: Called with each line.
    """
    if brought is None:
        return
    taken = []
    for key, theirs in brought.values.items():
        section, _, name = key.partition(".")
        options = getattr(recipe, section)
        own, default = getattr(options, name), type(options).model_fields[name].default
        if any(abs(a - b) > _NEAR for a, b in zip(theirs, own, strict=True)):
            on_message(f"warning: {brought.source}: they were trained with {key}={list(theirs)}, this is {list(own)}")
        elif own != default:
            taken.append(f"{key}={list(own)}")
    if taken:
        on_message(f"init: {' and '.join(taken)} of {brought.source}")


def tell_options(recipe: RecipeBase, brought: Brought | None, on_message: Callable[[str], None]) -> None:
    """Say which options a recipe's model has from its weights.

    Args:
        recipe: The resolved recipe.
        brought: The options that its weights bring.
        on_message: Called with a line.
    """
    if brought is None:
        return
    given = recipe.model.options
    taken = [
        f"model.options.{key}={given[key]}" for key, value in brought.values.items() if given.get(key) == _plain(value)
    ]
    if taken:
        on_message(f"init: {' and '.join(taken)} of {brought.source}")


def _read_options(name: str, task: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
    values = models_of(task).find(name).read_options(name, given)
    return values if isinstance(values, Mapping) else {key: getattr(values, key) for key in type(values).model_fields}


def _plain(value: Any) -> Any:
    """A value as a recipe has it."""
    return list(value) if isinstance(value, tuple) else value


def _is_set(recipe: RecipeBase, key: str) -> bool:
    section, _, name = key.partition(".")
    return section in recipe.model_fields_set and name in getattr(recipe, section).model_fields_set


def _recorded(path: Path, keys: Iterable[str]) -> Brought | None:
    """What lies with weights says of them."""
    if (recipe := _recipe_of(path)) is not None:
        return _of_recipe(recipe, keys, f"weights {path}")
    folder = path if path.is_dir() else path.parent
    for file in (folder / name for name in _PREPROCESSORS):
        if not file.is_file():
            continue
        if (found := _of_preprocessor(file, keys, f"weights {path} ({file.name})")) is not None:
            return found
    return None


def _recipe_of(path: Path) -> str | None:
    """The recipe of a run, of its checkpoint or of an export; None for other weights."""
    for file in (path / RUN_RECIPE, path.parent.parent / RUN_RECIPE):
        ours = path.is_dir() if file.parent == path else path.parent.name == "checkpoints"
        if ours and file.is_file():
            return _text(file)
    return safetensors_metadata(path).get("vcycle.recipe")


def _yaml(text: str) -> Any:
    """The values in a recipe; None if it cannot be read."""
    try:
        return read_yaml(text)
    except (ValueError, RecursionError):
        return None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(file: Path) -> str:
    try:
        return read_text(file, LONGEST)
    except (OSError, UnicodeDecodeError):
        return ""


def _of_recipe(text: str, keys: Iterable[str], source: str) -> Brought | None:
    """The values of keys in a run's recipe."""
    data = _mapping(_yaml(text))
    values = {}
    for dotted in keys:
        section, _, key = dotted.partition(".")
        if (value := _per_channel(key, _mapping(data.get(section)).get(key))) is not None:
            values[dotted] = value
    return Brought(values=values, source=source) if values else None


def _of_preprocessor(file: Path, keys: Iterable[str], source: str) -> Brought | None:
    """The mean and standard deviation in a preprocessor's configuration of transformers; None if it has none.

    Raises:
        CheckpointError: if it cannot be read, or they are not numbers per channel.
    """
    config = read_config(file)
    for section in (config, config.get("video_processor"), config.get("image_processor")):
        if isinstance(section, Mapping) and section.keys() & {"image_mean", "image_std"}:
            found = _normalisation(section, file)
            return Brought(values={key: value for key, value in found.items() if key in keys}, source=source)
    return None


def _normalisation(section: Mapping[str, Any], file: Path) -> dict[str, tuple[float, ...]]:
    """The mean and standard deviation, for values in 0..1, of a preprocessor that rescales and then normalises."""
    rescales = section.get("do_rescale", True) is not False
    factor = section.get("rescale_factor", 1 / 255) if rescales else 1.0
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < math.inf:
        raise CheckpointError(f"{file}: rescale_factor is {factor!r}; accepted: a finite number above 0")
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    if section.get("do_normalize") is not False:
        mean, std = (_three(section, name, file) for name in ("image_mean", "image_std"))
    # It computes (value·factor − shift − mean) / std of values in 0..255.
    scale, shift = 255 * factor, 1.0 if rescales and section.get("offset") else 0.0
    return {
        "sampling.mean": tuple(round((part + shift) / scale, 6) for part in mean),
        "sampling.std": tuple(round(part / scale, 6) for part in std),
    }


def _three(section: Mapping[str, Any], name: str, file: Path) -> tuple[float, ...]:
    key, value = name.removeprefix("image_"), section.get(name)
    if (found := _per_channel(key, value)) is None:
        above = " above 0" if key == "std" else ""
        raise CheckpointError(f"{file}: {name} is {value!r}; accepted: three finite numbers{above}, or one for all")
    return found


def _per_channel(key: str, value: Any) -> tuple[float, ...] | None:
    """A mean or standard deviation per channel; None if it is something else."""
    values = [value] * 3 if isinstance(value, int | float) else value
    if not isinstance(values, list | tuple) or len(values) != 3:
        return None
    least = 0.0 if key == "std" else -math.inf
    if not all(isinstance(part, int | float) and math.isfinite(part) and part > least for part in values):
        return None
    return tuple(float(part) for part in values)
