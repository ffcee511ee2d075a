"""Translates the configurations of other tools into recipes.

A tool's importer is a table: a rule for each key, or pattern of keys, of its configurations. A rule says that a key is
*translated* into keys of a recipe, *not needed*, or *different*. A key without a rule is different, so none is dropped
silently. A task lists its importers in `Task.importers`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from vcycle.errors import RecipeError, VcycleError
from vcycle.registry import import_attribute
from vcycle.tasks.base import tasks
from vcycle.tasks.models import ModelRegistry
from vcycle.tasks.nearest_recipe import as_yaml, count_keys, merged, nested, over_nearest, without_tuples
from vcycle.tasks.recipes import parse_recipe
from vcycle.utils.python_config import read_python_config
from vcycle.utils.reading import LONGEST, read_text, read_yaml, resolved

__all__ = [
    "Compute",
    "Finding",
    "Imported",
    "Importer",
    "Kind",
    "Rule",
    "Source",
    "differs",
    "existing",
    "finding_of",
    "import_config",
    "in_clips",
    "named_model",
    "only",
    "product",
    "switch",
    "to",
    "translated",
    "unneeded",
]

Kind = Literal["translated", "unneeded", "differs"]

_MOST_KEYS = 20_000
_UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What becomes of a key."""

    kind: Kind
    reason: str
    """The keys of the recipe that it is translated into, or why it is not needed or what differs."""
    sets: Mapping[str, Any] = field(default_factory=dict)
    """Values of the recipe by dotted key."""


class Source(Mapping[str, Any]):
    """The values of a configuration by dotted key; a default of the tool where the configuration has none."""

    def __init__(
        self, name: str, given: Mapping[str, Any], defaults: Mapping[str, Any], helpers: frozenset[str]
    ) -> None:
        self.name = name
        """The file, for messages."""
        self.given = given
        self.helpers = helpers
        """Top-level names that other values of the file use."""
        self._values = {**defaults, **given}

    def __getitem__(self, key: str) -> Any:
        """The value of a key."""
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        """All keys, those of defaults first."""
        return iter(self._values)

    def __len__(self) -> int:
        """Number of keys."""
        return len(self._values)

    def under(self, prefix: str) -> dict[str, Any]:
        """The keys that start with `prefix` and a dot, without both."""
        return {key[len(prefix) + 1 :]: value for key, value in self.items() if key.startswith(f"{prefix}.")}


Compute = Callable[[Any, Source], Finding]
"""From the value of a key, and all others, to what becomes of it."""
Rule = Finding | Compute
"""What becomes of a key, whatever its value, or how to compute it."""


def finding_of(rule: Rule, value: Any, source: Source) -> Finding:
    """What becomes of a key of this value."""
    return rule if isinstance(rule, Finding) else rule(value, source)


def translated(*into: str, **sets: Any) -> Finding:
    """A key that the recipe has as other keys: `sets`, with `__` for a dot, or `into`, which `compose` computes."""
    values = {key.replace("__", "."): value for key, value in sets.items()}
    return Finding(kind="translated", reason=", ".join((*into, *values)), sets=values)


def to(key: str, convert: Callable[[Any], Any] = lambda value: value) -> Compute:
    """A key that the recipe has under another name."""
    return lambda value, source: translated(**{key: convert(value)})


def unneeded(why: str) -> Finding:
    """A key that a recipe does not need."""
    return Finding(kind="unneeded", reason=why)


def differs(why: str, **sets: Any) -> Finding:
    """A key for which vcycle does something else, or nothing; `sets` as for `translated`."""
    return Finding(kind="differs", reason=why, sets=translated(**sets).sets)


def only(*accepted: Any, why: str) -> Compute:
    """A key with values for which vcycle does the same; others are different."""
    same = unneeded("vcycle does the same")
    return lambda value, source: same if without_tuples(value) in map(without_tuples, accepted) else differs(why)


def switch(on: Rule, off: str) -> Compute:
    """A key whose value may be off, none or empty, which a recipe then does not need."""
    return lambda value, source: finding_of(on, value, source) if value else unneeded(off)


def existing(value: Any, kind: str, key: str) -> Finding:
    """A path: it is translated if it exists, and otherwise to be given on the command line."""
    if isinstance(value, str) and value and Path(value).exists():
        return translated(**{key: value})
    if not value:
        return unneeded("empty")
    return differs(f"no such {kind} here: give it with {key}={kind.upper()}")


def product(one: float, other: float) -> float:
    """A product without the last digits, which the recipe would show: 0.1 × 0.1 is 0.01."""
    return float(f"{one * other:.12g}")


def in_clips(epochs: Any, repeats: int) -> Any:
    """Epochs of a tool that counts videos, in vcycle's, which count the clips of each video."""
    return epochs if repeats == 1 else product(float(epochs), repeats)


@dataclass(frozen=True, kw_only=True)
class Importer:
    """Translates the configurations of one tool."""

    tool: str
    """Its name."""
    suffixes: tuple[str, ...]
    """Suffixes of its configurations: `.py` for Python, others for YAML."""
    has: str
    """What identifies its configurations, for messages."""
    owns: Callable[[Mapping[str, Any]], bool]
    """Whether the top-level keys are those of its configurations."""
    rules: Mapping[str, Rule]
    """A rule for each key, or for each pattern, in which `*` stands for any text. The first match counts, exact ones
    first."""
    compose: Callable[[Source], Mapping[str, Any]]
    """Computes those keys of the recipe that depend on several keys, as dotted keys with their values. Without
    `model.name` in them, the user has to give a model."""
    model_key: str
    """The key that names the model."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """The tool's defaults of keys that matter, where they differ from vcycle's."""
    numbers_as_text: bool = False
    """Whether text that reads as a number is one, as in PySlowFast's `1e-4`."""

    @cached_property
    def _patterns(self) -> list[tuple[re.Pattern[str], Rule]]:
        return [
            (re.compile(".*".join(map(re.escape, pattern.split("*")))), rule)
            for pattern, rule in self.rules.items()
            if "*" in pattern
        ]

    @cached_property
    def _matched(self) -> dict[str, Rule]:
        return dict(self.rules)

    def rule_of(self, key: str) -> Rule:
        """The rule of a key."""
        if key not in self._matched:
            matching = (rule for pattern, rule in self._patterns if pattern.fullmatch(key))
            self._matched[key] = next(matching, differs(_UNKNOWN))
        return self._matched[key]

    def findings(self, source: Source) -> dict[str, Finding]:
        """What becomes of each key, given or a default.

        Raises:
            RecipeError: if a value is none that the tool accepts.
        """
        found = {}
        for key, value in source.items():
            try:
                found[key] = finding_of(self.rule_of(key), value, source)
            except _UNREADABLE as error:
                if isinstance(error, VcycleError):
                    raise
                raise RecipeError(
                    f"{source.name}: key {key!r} is {_short(value)}: not a value of {self.tool}"
                ) from None
            if found[key].reason == _UNKNOWN and re.split(r"[.\[]", key)[0] in source.helpers:
                found[key] = unneeded("a name for values that other keys use")
        return found

    def composed(self, source: Source) -> Mapping[str, Any]:
        """The keys of the recipe that depend on several keys.

        Raises:
            RecipeError: if the configuration is of another kind, or none that the tool accepts.
        """
        try:
            return self.compose(source)
        except _UNREADABLE as error:
            if isinstance(error, VcycleError):
                raise
            raise RecipeError(f"{source.name}: not a configuration that {self.tool} accepts: {error}") from None


_UNKNOWN = "vcycle has nothing of the kind"


class Imported(NamedTuple):
    """A recipe made from a configuration."""

    tool: str
    source: str
    """The file."""
    text: str
    """The recipe as YAML."""
    base: str | None
    """The shipped recipe that it is based on."""
    keys: int
    """Number of keys that it sets."""
    values: Mapping[str, Any]
    """The values of the configuration by key."""
    findings: Mapping[str, Finding]
    """What becomes of each key of the configuration."""
    assumed: Mapping[str, Finding]
    """What becomes of the tool's defaults, by key."""
    missing: str | None
    """What to add to the command line before the recipe can be planned, if anything."""

    def of(self, kind: Kind) -> dict[str, Finding]:
        """The keys of one kind; a default that differs is listed like a key."""
        found = {key: finding for key, finding in self.findings.items() if finding.kind == kind}
        if kind == "differs":
            found |= {f"{key} (default)": each for key, each in self.assumed.items() if each.kind == kind}
        return found


def import_config(path: Path, overrides: Sequence[str] = ()) -> Imported:
    """Translate a configuration of another tool into a recipe.

    Args:
        path: The file.
        overrides: Changes to the recipe, such as `model=my_package.nets:MyNet`.

    Raises:
        RecipeError: if the file cannot be read, is of no known tool, or describes what vcycle cannot train.
        PlanError: if the recipe's plan cannot be built.
    """
    task, importer, data, helpers = _recognised(path)
    given = dict(_leaves(data, str(path)))
    source = Source(str(path), given, importer.defaults, helpers)
    findings = importer.findings(source)
    sets: dict[str, Any] = {}
    for finding in findings.values():
        sets |= finding.sets
    sets |= importer.composed(source)
    if "model.name" not in sets:
        findings = _without_model(importer, source, overrides, findings)
    sets["description"] = f"{path.stem}, imported from {importer.tool}"
    if task != "recognition":
        sets["task"] = task
    recipe = nested(sets)
    parsed = parse_recipe(as_yaml(recipe), str(path), overrides)
    owner = tasks[task]
    known = parsed.data.path is not None or owner.length(parsed) is not None
    if parsed.data.path is None and known:
        try:
            owner.check_plan(parsed, owner.plan(parsed, owner.length(parsed)))
        except VcycleError as error:
            raise type(error)(f"{path}: the plan of its recipe cannot be built: {error}") from None
    base, own = over_nearest(task, parsed.model_dump(mode="json", by_alias=True), sets)
    text = as_yaml(own if base is None else {"base": base, **own})
    return Imported(
        tool=importer.tool,
        source=str(path),
        text=text,
        base=base,
        keys=count_keys(own),
        values=given,
        findings={key: findings[key] for key in given},
        assumed={key: finding for key, finding in findings.items() if key not in given},
        missing=None if known else "data=FOLDER",
    )


def _recognised(path: Path) -> tuple[str, Importer, Mapping[str, Any], frozenset[str]]:
    """The task and the importer of a file, and what the file holds."""
    known = [
        (task.name, import_attribute(attribute, f"importer {tool!r}"))
        for task in tasks.values()
        for tool, attribute in task.importers.items()
    ]
    accepted = "; ".join(f"{each.tool} ({', '.join(each.suffixes)} with {each.has})" for _, each in known)
    if not any(path.suffix in importer.suffixes for _, importer in known):
        raise RecipeError(f"{path}: not a configuration that can be imported; accepted: {accepted}")
    helpers: frozenset[str] = frozenset()
    try:
        if path.suffix == ".py":
            data, helpers = read_python_config(path)
        else:
            data = _read_yaml(path)
    except OSError as error:  # of the file or one of its bases
        raise RecipeError(f"{error.filename or path}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise RecipeError(str(error)) from None
    except RecursionError:
        raise RecipeError(f"{path}: nested too deeply") from None
    for task, importer in known:
        if path.suffix in importer.suffixes and isinstance(data, Mapping) and importer.owns(data):
            return task, importer, _evaluated(data) if importer.numbers_as_text else data, helpers
    raise RecipeError(f"{path}: not a configuration that can be imported; accepted: {accepted}")


def _read_yaml(path: Path, chain: tuple[Path, ...] = ()) -> Any:
    """Read YAML, over the file that a key `_BASE_` names.

    Raises:
        OSError: if a file cannot be read.
        ValueError: if a file is not YAML, or a chain of bases is circular; names the file.
    """
    place = resolved(path)
    if place in chain:
        raise ValueError(f"{path}: _BASE_ is circular")
    try:
        data = read_yaml(read_text(path, LONGEST))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from None
    if not isinstance(data, dict) or "_BASE_" not in data:
        return data
    base = data.pop("_BASE_")
    if not isinstance(base, str):
        raise ValueError(f"{path}: _BASE_ is {_short(base)}; accepted: the name of one file")
    below = _read_yaml(path.parent / base, (*chain, place))
    if not isinstance(below, dict):
        raise ValueError(f"{path.parent / base}: not a file of keys, as _BASE_ of {path.name} needs")
    return merged(below, data)


def _evaluated(value: Any) -> Any:
    """Read text that is a number as the number."""
    if isinstance(value, Mapping):
        return {key: _evaluated(inner) for key, inner in value.items()}
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _leaves(data: Any, source: str) -> Iterator[tuple[str, Any]]:
    """The values of a configuration by dotted key; an item of a list of mappings by its type: `pipeline[Resize].scale`.

    Raises:
        RecipeError: if there are too many.
    """
    for number, leaf in enumerate(_walk(data, "")):
        if number >= _MOST_KEYS:
            raise RecipeError(f"{source}: more than {_MOST_KEYS:,} keys")
        yield leaf


def _walk(data: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    if isinstance(data, Mapping) and data:
        for key, value in data.items():
            yield from _walk(value, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(data, list | tuple) and data and all(isinstance(item, Mapping) for item in data):
        counts: dict[str, int] = {}
        for item in data:
            name = str(item.get("type", "item"))
            counts[name] = counts.get(name, 0) + 1
            suffix = f"#{counts[name]}" if counts[name] > 1 else ""
            yield from _walk(item, f"{prefix}[{name}{suffix}]")
    else:
        yield prefix, data


def _without_model(
    importer: Importer, source: Source, overrides: Sequence[str], findings: Mapping[str, Finding]
) -> dict[str, Finding]:
    """The findings about a configuration whose model the user replaces.

    Raises:
        RecipeError: if the user gives no model.
    """
    if not any(override.startswith(("model=", "model.name=")) for override in overrides):
        raise RecipeError(
            f"{source.name}: {importer.model_key} is {source.get(importer.model_key)!r}, a model that vcycle does not "
            "have: give one that it has, or your own: model=my_package.nets:MyNet"
        )
    replaced = differs("the model is the one that you give")
    return {key: replaced if finding.reason == "model" else finding for key, finding in findings.items()}


def named_model(registry: ModelRegistry, names: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """The model among `names` that differs in the fewest options, as keys of a recipe.

    Args:
        registry: The task's models.
        names: Candidates of one family; of equals, the first is taken.
        options: The options of the configuration's model.
    """
    best: dict[str, Any] | None = None
    for name in names:
        spec = registry[name]
        preset = spec.read_options(name, {})
        wanted = spec.read_options(name, options).model_dump(mode="json")
        own = {key: value for key, value in wanted.items() if value != preset.model_dump(mode="json")[key]}
        if best is None or len(own) < len(best["model.options"]):
            best = {"model.name": name, "model.options": own}
    return best or {}


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
