"""Finds recipes by name or path, applies overrides, and validates them."""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from vcycle.config.bases import MAIN_KEYS, Written, resolve
from vcycle.config.recipe import RUN_RECIPE, RecipeBase
from vcycle.data.locations import given_location, location
from vcycle.errors import RecipeError, did_you_mean
from vcycle.registry import import_attribute
from vcycle.section import ordered_fields
from vcycle.tasks.base import tasks
from vcycle.tasks.brought import with_brought
from vcycle.tasks.plans import check_sections
from vcycle.utils.reading import LONGEST, read_yaml

__all__ = [
    "RUN_RECIPE",
    "dotted_keys",
    "dump_recipe",
    "load_recipe",
    "parse_recipe",
    "recipe_names",
    "recipe_of_data",
    "recipe_text",
    "with_absolute_paths",
]

_Recipe = TypeVar("_Recipe", bound=RecipeBase)

_MEMBER = re.compile(
    r"(constrained-|literal\[|function-|is-instance|nullable|(int|float|str|bool|tuple|list|dict)(\[|$))"
)
"""Names that pydantic gives the members of a union."""
_ANY_RECIPE = "videos/small"
"""The default recipe of commands on data: they use only its `data` section, with the user's overrides."""

_CHANGEABLE = ("evaluation", "data", "run")
"""Sections of a trained model's recipe that an evaluation may change; the others define what was trained."""

_MODEL_NAMES = ("model=", "model.name=")


def recipe_names(task: str | None = None) -> list[str]:
    """Names of the shipped recipes, such as `kinetics/slowfast_8x8_r50`; of one task, or of all."""
    return sorted(_shipped(task))


def _shipped(task: str | None = None) -> dict[str, Traversable]:
    """The files of the shipped recipes, by name; of one task, or of all."""
    return {
        f"{folder.name}/{file.name.removesuffix('.yaml')}": file
        for package in (each.recipes for each in (tasks.values() if task is None else [tasks[task]]))
        if package is not None
        for folder in resources.files(package).iterdir()
        if folder.is_dir()
        for file in folder.iterdir()
        if file.name.endswith(".yaml")
    }


def recipe_text(name: str) -> tuple[str, str]:
    """The text of a recipe file, and its source.

    Args:
        name: A shipped recipe's name, or its last part if that is unique; a YAML file; or a run folder.

    Raises:
        RecipeError: if the recipe does not exist.
    """
    found = _find(name)
    return found.text, found.source


def load_recipe(name: str, overrides: Sequence[str] = ()) -> RecipeBase:
    """Load a recipe of any task: merge it with its bases and apply dotted overrides.

    Args:
        name: As in `recipe_text`.
        overrides: Such as `training.batch=512` or `data=videos/`; values are parsed as YAML.

    Raises:
        RecipeError: if a key or override is wrong; names it, its value and the accepted values.
    """
    return _parse(_find(name), overrides)


def parse_recipe(text: str, source: str, overrides: Sequence[str] = ()) -> RecipeBase:
    """Parse a recipe from text and apply dotted overrides. Its base, if any, must be a shipped recipe.

    Args:
        text: YAML.
        source: Where the text comes from, for messages.
        overrides: As in `load_recipe`.

    Raises:
        RecipeError: as in `load_recipe`.
    """
    return _parse(Written(text, source, None), overrides)


def _find(name: str, folder: Path | None = Path()) -> Written:
    """Find a recipe by name or path. Paths are relative to `folder`; if it is None, only names are looked up."""
    if folder is not None:
        path = folder / name
        if path.is_dir() and (path / RUN_RECIPE).is_file():
            path = path / RUN_RECIPE
        if path.is_file():
            try:
                if (size := path.stat().st_size) > LONGEST:
                    raise RecipeError(f"{path}: too large for a recipe: {size:,} bytes; the limit is {LONGEST:,}")
                return Written(path.read_text(encoding="utf-8"), str(path), path.parent)
            except (OSError, UnicodeDecodeError) as error:
                raise RecipeError(f"{path}: cannot be read as a recipe: {error}") from None
    names = recipe_names()
    full = [known for known in names if known == name or known.rpartition("/")[2] == name]
    if len(full) == 1:
        text = _shipped()[full[0]].read_text(encoding="utf-8")
        return Written(text, full[0], None)
    if full:
        raise RecipeError(f"recipe {name!r} is ambiguous: {', '.join(full)}")
    near = did_you_mean(name, names) or did_you_mean(name, [known.rpartition("/")[2] for known in names])
    raise RecipeError(
        f"no recipe {name!r}: not a file, a run folder or a shipped recipe{near}; `vcycle recipes` lists the "
        "shipped recipes"
    )


def _parse(written: Written, overrides: Sequence[str]) -> RecipeBase:
    origins: dict[str, str] = {}
    schema: type[RecipeBase] = RecipeBase
    try:
        data, origins = resolve(written, _find)
        # Apply the model's name first: it resets the options of the previous model, not those given with it.
        for override in sorted(overrides, key=lambda override: not override.startswith(_MODEL_NAMES)):
            key = _override(data, override)
            origins = {known: source for known, source in origins.items() if not known.startswith(f"{key}.")}
            origins[key] = f"override {override!r}"
        import_modules(data.get("import"), origins.get("import", written.source))
        task = data.get("task", "recognition")
        if not isinstance(task, str) or task not in tasks:
            source = origins.get("task", written.source)
            raise RecipeError(f"{source}: key 'task' is {task!r}: must be {' or '.join(tasks)}")
        schema = tasks[task].recipe
        recipe = schema.model_validate(data)
        if (whole := with_brought(recipe, data)) is not None:
            recipe = schema.model_validate(whole)
        try:
            check_sections(tasks[task].plans, recipe)
        except RecipeError as error:
            raise RecipeError(f"{written.source}: {error}") from None
        return recipe
    except ValidationError as error:
        raise RecipeError(_explain(error, written.source, origins, schema)) from None
    except RecursionError:
        raise RecipeError(f"{written.source}: nested too deeply") from None


def import_modules(modules: Any, source: str) -> None:
    """Import the modules listed in a recipe: they may register models, layouts, plans and tasks.

    Raises:
        RecipeError: if one cannot be imported, or is no name.
    """
    listed = modules if isinstance(modules, list | tuple) else [] if modules is None else [modules]
    for module in listed:
        if not isinstance(module, str):
            raise RecipeError(f"{source}: key 'import' is {modules!r}: must be module names")
        import_attribute(module, f"{source}: key 'import'", here=True)


def dump_recipe(recipe: RecipeBase) -> str:
    """The resolved recipe as YAML."""
    data = _in_order(recipe.model_dump(mode="json", by_alias=True), recipe)
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110)


def _in_order(data: Mapping[str, Any], section: BaseModel) -> dict[str, Any]:
    """A section's data in the order of `ordered_fields`, recursively; keys of registered plans come last."""
    found = {}
    for name, field in ordered_fields(type(section)).items():
        key, value = field.alias or name, getattr(section, name)
        found[key] = _in_order(data[key], value) if isinstance(value, BaseModel) else data[key]
    return {**found, **{key: value for key, value in data.items() if key not in found}}


def with_absolute_paths(recipe: _Recipe) -> _Recipe:
    """A copy of the recipe with absolute paths, for use from any folder."""
    update: dict[str, dict[str, str]] = {}
    for key in recipe.paths:
        section, _, name = key.partition(".")
        value = getattr(getattr(recipe, section), name, None)
        if value is not None:
            update.setdefault(section, {})[name] = str(location(value).absolute())
    sections = {section: getattr(recipe, section).model_copy(update=paths) for section, paths in update.items()}
    return recipe.model_copy(update=sections)


def _override(data: dict[str, Any], override: str) -> str:
    """Apply an override to a recipe's data; returns its dotted key."""
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise RecipeError(f"override {override!r} is not of the form key=value, such as training.batch=32")
    if not text.strip():
        raise RecipeError(f"override {override!r}: the value is missing; accepted: {key}=VALUE, {key}=null for none")
    if key in ("data", "init") and text != "null" and not text.lstrip().startswith("{"):
        value: Any = text  # a path is not parsed
    else:
        try:
            value = read_yaml(text)
        except (ValueError, RecursionError):
            raise RecipeError(f"override {override!r}: the value is not valid YAML") from None
        if (joined := _joined_key(value)) is not None:
            spaced = joined.replace(":", ": ", 1)
            raise RecipeError(f"override {override!r}: YAML needs a space after a colon: {{{spaced}}}")
    parts = key.split(".")
    if len(parts) == 1 and key in MAIN_KEYS and not isinstance(value, dict):
        parts.append(MAIN_KEYS[key])
    node: Any = data
    for part in parts[:-1]:
        below = node.get(part)
        if not isinstance(below, dict):
            # `model: r3d_18` in the file and `model.options.x=1` on the command line.
            below = {MAIN_KEYS[part]: below} if part in MAIN_KEYS and below is not None else {}
            node[part] = below
        node = below
    if parts == ["model", "name"] and node.get("name") != value:
        node.pop("options", None)  # options and needs belong to one model
        node.pop("needs", None)
    node[parts[-1]] = value
    return ".".join(parts)


def _joined_key(value: Any) -> str | None:
    """The first key without a value that has a colon in it, as YAML reads `{train:40}`; None if there is none."""
    if not isinstance(value, dict):
        return None
    inner = (
        key if below is None and isinstance(key, str) and ":" in key else _joined_key(below)
        for key, below in value.items()
    )
    return next((key for key in inner if key is not None), None)


def _explain(error: ValidationError, source: str, origins: Mapping[str, str], kind: type[BaseModel]) -> str:
    """Format the first error in one line: source, key, value, accepted values.

    Args:
        error: The error from pydantic.
        source: The recipe.
        origins: The base, recipe or override that set each key.
        kind: The schema.
    """
    # A misspelt key is also reported as missing under its right name: report the misspelling.
    fault = min(error.errors(), key=lambda fault: fault["type"] != "extra_forbidden")
    where = _keys_in(fault["loc"])
    alternatives = [other for other in error.errors() if _keys_in(other["loc"])[: len(where)] == where]  # of a union
    key = ".".join(where)
    unknown = fault["type"] == "extra_forbidden"
    set_by = [start for start in origins if start.startswith(f"{key}.")]  # a key with sub-keys
    set_by = set_by or [start for start in origins if f"{key}.".startswith(f"{start}.")]
    source = origins[max(set_by, key=len)] if set_by else source
    others = error.error_count() - len(alternatives)
    more = f" (and {others} more)" if others else ""
    if unknown:
        known = _keys(kind, where[:-1])
        near = did_you_mean(where[-1], known)
        if len(where) <= 2:
            near = _meant(where[-1], kind, exactly=True) or near or _meant(where[-1], kind, exactly=False)
        return f"{source}: unknown key {key!r}{near}; known here: {', '.join(known)}{more}"
    if fault["type"] == "missing":
        return f"{source}: key {key!r} is missing{more}"
    accepted = ", or ".join(_lower(other["msg"]) for other in alternatives)
    if fault["type"] == "model_type":
        accepted = f"must be a section with keys such as {', '.join(_keys(kind, where)[:4])}"
    return f"{source}: key {key!r} is {fault['input']!r}: {accepted}{more}"


def _keys_in(loc: Sequence[str | int]) -> list[str]:
    """The keys and positions in the place of a fault, without the names that pydantic gives the members of a union."""
    return [str(part) for part in loc if isinstance(part, int) or not _MEMBER.match(part)]


def _meant(key: str, kind: type[BaseModel], *, exactly: bool) -> str:
    """Suggest keys of other sections, such as `run.seed` for `seeds`; a suffix for messages."""
    sections = [name for name, field in kind.model_fields.items() if _model_in(field.annotation) is not None]
    inner = {section: _keys(kind, [section]) for section in sections}
    names = list(dict.fromkeys(name for keys in inner.values() for name in keys))
    near = [key] if exactly else difflib.get_close_matches(key, names, n=1, cutoff=0.8)
    found = [f"'{section}.{name}'" for section, keys in inner.items() for name in keys if name in near]
    return f" (did you mean {' or '.join(found)}?)" if found else ""


def _keys(kind: type[BaseModel], path: Sequence[str]) -> list[str]:
    """The keys of a section."""
    model = kind
    for part in path:
        fields = {(f.alias or name): f for name, f in model.model_fields.items()}
        if part not in fields:
            continue
        inner = _model_in(fields[part].annotation)
        if inner is not None:
            model = inner
    return [field.alias or name for name, field in ordered_fields(model).items()]


def dotted_keys(kind: type[BaseModel], path: Sequence[str] = ()) -> Iterator[str]:
    """Yield the keys of a schema, such as `training.batch`.

    Args:
        kind: The schema.
        path: The section to begin with; the whole schema by default.
    """
    for name, field in ordered_fields(kind).items():
        key = (*path, field.alias or name)
        inner = _model_in(field.annotation)
        if inner is None or key[-1] in MAIN_KEYS:
            yield ".".join(key)
        if inner is not None:
            yield from dotted_keys(inner, key)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The section class in an annotation such as `Section | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in getattr(annotation, "__args__", ()):
        found = _model_in(part)
        if found is not None:
            return found
    return None


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def load_given(recipe: str, overrides: Sequence[str] | None) -> RecipeBase:
    """Load a recipe given on the command line, with absolute paths; `~` in overrides expands to the home folder.

    Raises:
        RecipeError: as in `load_recipe`; or if an override is a path without a key.
    """
    for override in overrides or ():
        if "=" not in override and Path(override).exists():
            raise RecipeError(f"{override!r} is a path without a key: data={override} gives the videos")
    return with_absolute_paths(load_recipe(recipe, [_expand_home(override) for override in overrides or ()]))


def recipe_of_data(data: str, recipe: str | None, layout: str | None, overrides: Sequence[str] | None) -> RecipeBase:
    """Load the recipe for a command's data, with absolute paths; `videos/small` if no recipe is given.

    Args:
        data: The value of `data.path`.
        recipe: The recipe's name.
        layout: The value of `data.layout`.
        overrides: The user's overrides.

    Raises:
        RecipeError: if the recipe or an override is wrong.
    """
    given = list(overrides or ())
    if wrong := next((text for text in given if recipe is None and not text.startswith("data.")), None):
        raise RecipeError(f"{wrong!r}: without --recipe, only keys of data can be changed, such as data.val=FILE")
    if layout is not None:
        given.append(f"data.layout={layout}")
    return with_absolute_paths(load_recipe(recipe or _ANY_RECIPE, [f"data.path={given_location(data)}", *given]))


def override_trained(recipe: RecipeBase, overrides: Sequence[str], source: str) -> RecipeBase:
    """Apply overrides to a trained model's recipe, in the sections that an evaluation may change.

    Raises:
        RecipeError: if a key defines what was trained, or is wrong.
    """
    for override in overrides:
        section = override.partition("=")[0].partition(".")[0]
        if section not in _CHANGEABLE:
            raise RecipeError(
                f"override {override!r}: the model in {source} is already trained; only keys of "
                f"{', '.join(_CHANGEABLE[:-1])} and {_CHANGEABLE[-1]} can be changed, such as evaluation.clips=10"
            )
    if not overrides:
        return with_absolute_paths(recipe)
    return with_absolute_paths(parse_recipe(dump_recipe(recipe), source, overrides))


def _expand_home(override: str) -> str:
    """Expand the ~ in `data=~/videos`, which not every shell does."""
    key, equals, value = override.partition("=")
    return f"{key}{equals}{Path(value).expanduser()}" if value.startswith("~/") else override
