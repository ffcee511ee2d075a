"""Recipe files: found by name or path, overridden from the command line, checked whole."""

import difflib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from vcycle.errors import RecipeError
from vcycle.recipes.schema import Recipe

__all__ = ["dump_recipe", "load_recipe", "recipe_names", "recipe_text", "with_absolute_paths"]

RUN_RECIPE = "recipe.yaml"
"""The resolved recipe's name in a run's folder."""

_MAIN_KEYS = {"data": "path", "model": "name", "optimizer": "name", "decay": "law"}
"""Sections that may be written as the value of their main key alone: `data=FOLDER`."""

_MODEL_NAMES = ("model=", "model.name=")


def recipe_names() -> list[str]:
    """Names of the shipped recipes, such as `kinetics/slowfast_8x8_r50`."""
    root = resources.files("vcycle.recipes")
    return sorted(
        f"{folder.name}/{file.name.removesuffix('.yaml')}"
        for folder in root.iterdir()
        if folder.is_dir()
        for file in folder.iterdir()
        if file.name.endswith(".yaml")
    )


def recipe_text(name: str) -> tuple[str, str]:
    """The text of a recipe and where it came from.

    Args:
        name: A shipped recipe's name, a YAML file, or the folder of a run.

    Raises:
        RecipeError: if there is no such recipe.
    """
    path = Path(name)
    if path.is_dir() and (path / RUN_RECIPE).is_file():
        path = path / RUN_RECIPE
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8"), str(path)
        except (OSError, UnicodeDecodeError) as error:
            raise RecipeError(f"{path}: cannot be read as a recipe: {error}") from None
    names = recipe_names()
    if name in names:
        return (resources.files("vcycle.recipes") / f"{name}.yaml").read_text(encoding="utf-8"), name
    raise RecipeError(
        f"no recipe {name!r}: neither a file, nor the folder of a run, nor one of the shipped "
        f"({', '.join(names)}){_suggestion(name, names)}"
    )


def load_recipe(name: str, overrides: Sequence[str] = ()) -> Recipe:
    """A recipe, with dotted overrides applied.

    Args:
        name: As in `recipe_text`.
        overrides: Such as `training.batch=512` or `data=videos/`; values are read as YAML.

    Raises:
        RecipeError: naming the key or override, what was found and what is accepted.
    """
    text, source = recipe_text(name)
    try:
        data = yaml.safe_load(text)
        if not isinstance(data, dict):
            raise RecipeError(f"{source}: a recipe is a mapping of sections, this is {type(data).__name__}")
        # The model's name comes first: it lays aside the options of the one before, not those that are given with it.
        ordered = sorted(overrides, key=lambda override: not override.startswith(_MODEL_NAMES))
        origins = {_override(data, override): override for override in ordered}
        return Recipe.model_validate(data)
    except yaml.YAMLError as error:
        raise RecipeError(f"{source}: not valid YAML: {' '.join(str(error).split())}") from None
    except ValidationError as error:
        raise RecipeError(_explain(error, source, origins)) from None
    except RecursionError:
        raise RecipeError(f"{source}: nested too deeply") from None


def dump_recipe(recipe: Recipe) -> str:
    """The resolved recipe as YAML."""
    data = recipe.model_dump(mode="json", by_alias=True)
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110)


def with_absolute_paths(recipe: Recipe) -> Recipe:
    """The recipe as it can be used from any folder."""
    given = {key: getattr(recipe.data, key) for key in ("path", "val", "test", "root")}
    absolute = {key: str(Path(path).absolute()) for key, path in given.items() if path is not None}
    return recipe.model_copy(update={"data": recipe.data.model_copy(update=absolute)})


def _override(data: dict[str, Any], override: str) -> str:
    """Put a value into a recipe's data, at the dotted key that is returned."""
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise RecipeError(f"override {override!r} is not of the form key=value, such as training.batch=32")
    if key == "data" and not text.lstrip().startswith("{"):
        value: Any = text  # a path is taken as it stands
    else:
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            raise RecipeError(f"override {override!r}: the value is not valid YAML") from None
    parts = key.split(".")
    if len(parts) == 1 and key in _MAIN_KEYS and not isinstance(value, dict):
        parts.append(_MAIN_KEYS[key])
    node: Any = data
    for part in parts[:-1]:
        below = node.get(part)
        if not isinstance(below, dict):
            # `model: r3d_18` in the file and `model.options.x=1` on the command line.
            below = {_MAIN_KEYS[part]: below} if part in _MAIN_KEYS and below is not None else {}
            node[part] = below
        node = below
    if parts == ["model", "name"] and node.get("name") != value:
        node.pop("options", None)  # options are those of one model
    node[parts[-1]] = value
    return ".".join(parts)


def _explain(error: ValidationError, source: str, origins: Mapping[str, str]) -> str:
    """The first fault in one line: where it comes from, the key, what it holds, what is accepted.

    Args:
        error: What pydantic found.
        source: The recipe.
        origins: The override that set a key.
    """
    # A misspelt key is missing under its right name: the spelling is what to mend.
    fault = min(error.errors(), key=lambda fault: fault["type"] != "extra_forbidden")
    where = [str(p) for p in fault["loc"]]
    key = ".".join(where)
    override = next((text for start, text in origins.items() if f"{key}.".startswith(f"{start}.")), None)
    if override is not None:
        source = f"override {override!r}"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if fault["type"] == "extra_forbidden":
        known = _keys(where[:-1])
        return f"{source}: unknown key {key!r}{_suggestion(where[-1], known)}; known here: {', '.join(known)}{more}"
    if fault["type"] == "missing":
        return f"{source}: key {key!r} is missing{more}"
    accepted = _lower(fault["msg"])
    if fault["type"] == "model_type":
        accepted = f"a section is accepted, with keys such as {', '.join(_keys(where)[:4])}"
    return f"{source}: key {key!r} is {fault['input']!r}: {accepted}{more}"


def _keys(path: Sequence[str]) -> list[str]:
    """The keys of a section."""
    model: type[BaseModel] = Recipe
    for part in path:
        fields = {(f.alias or name): f for name, f in model.model_fields.items()}
        if part not in fields:
            continue
        inner = _model_in(fields[part].annotation)
        if inner is not None:
            model = inner
    return [f.alias or name for name, f in model.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The section class within an annotation such as `Section | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in getattr(annotation, "__args__", ()):
        found = _model_in(part)
        if found is not None:
            return found
    return None


def _suggestion(word: str, known: Sequence[str] | Mapping[str, object]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
