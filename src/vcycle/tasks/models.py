"""Models of every task: registered by name, or named in a recipe as ``module:attribute``. Imports no torch.

A model brings what the rest of vcycle asks of it in a :class:`ModelSpec`: how it is built, its options, what it needs
of a clip's shape, other libraries' names of its weights, and which of its parameters a recipe can treat apart.
"""

import inspect
import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from vcycle.config.recipe import NeedsSection, RecipeBase
from vcycle.errors import PlanError, RecipeError, VcycleError, did_you_mean, user_code
from vcycle.plan import Baseline, ShapeConstraints
from vcycle.plan.shape import Multiples
from vcycle.registry import Registry, import_attribute
from vcycle.section import Section
from vcycle.tasks.base import tasks
from vcycle.tasks.model_options import check_names, read_options

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = [
    "KeyMap",
    "ModelChoice",
    "ModelRegistry",
    "ModelSpec",
    "Needs",
    "ParameterRole",
    "is_shipped",
    "models_of",
    "register_model",
]

_SPEC = "__vcycle_model__"
"""The attribute in which :func:`register_model` leaves a model's spec."""

Needs = ShapeConstraints | Mapping[str, int] | Callable[[Any], ShapeConstraints | Mapping[str, int]]
"""What a model needs of a clip's shape: constraints, or a function of its options that returns them."""

_Built = TypeVar("_Built", bound=Callable[..., Any])


class ModelChoice(Protocol):
    """A recipe's section ``model``."""

    @property
    def name(self) -> str:
        """A registered name, or ``module:attribute``."""
        ...

    @property
    def options(self) -> Mapping[str, Any]:
        """Options of the model."""
        ...

    @property
    def needs(self) -> NeedsSection | None:
        """What the recipe adds to the model's own needs."""
        ...


@dataclass(frozen=True, kw_only=True)
class KeyMap:
    """Other libraries' names of the tensors of a family of models."""

    libraries: Mapping[str, str]
    """Each library, as ``vcycle export --to`` calls it, and its own spelling."""
    dialect_of: Callable[[Iterable[str]], str | None]
    """Keys → the library whose names they are, ``vcycle`` for ours, None where that is not known."""
    to_ours: Callable[[Iterable[str]], Mapping[str, str] | None]
    """Keys → our name of each, None where it is not known whose names they are."""
    foreign_keys: Callable[[Iterable[str], str, Any], Mapping[str, str]]
    """Our keys, library, the model's options → that library's name of each key that it has."""
    inflated: Callable[[Mapping[str, "Tensor"], bool], Mapping[str, str] | None] | None = None
    """Weights of an image network, whether the model has a fast pathway → our name of each key, to be repeated in time;
    None where the weights are of something else."""


@dataclass(frozen=True, kw_only=True)
class ParameterRole:
    """Parameters to which a plan may give a learning rate of their own."""

    holds: Callable[[str], bool]
    """Whether the parameter of that name is one of them."""
    present: Callable[[Any], bool] = lambda options: True
    """Whether a model with these options has any."""


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """What vcycle knows of a model."""

    build: str | Callable[..., Any]
    """Builds the ``nn.Module``; or ``module:attribute`` of what does, imported when a model is built. Called with the
    task's own arguments (recognition: the number of classes; super-resolution: none) and the options by name."""
    task: str = "recognition"
    """The task that it is for."""
    options: type[Section] | None = None
    """The class of its options; None for options that are not checked, except for their names."""
    preset: Mapping[str, Any] = field(default_factory=dict)
    """Options that differ from their class's defaults."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of ``build``, which no option changes."""
    needs: Needs = field(default_factory=ShapeConstraints)
    """What it needs of a clip's shape: constraints, or a function of its options."""
    key_map: KeyMap | str | None = None
    """Other libraries' names of its weights; or ``module:attribute`` of them."""
    roles: Mapping[str, ParameterRole] = field(default_factory=dict)
    """Parameters that a plan may treat apart; of several roles, a parameter has the first that the plan has."""
    parts: Mapping[str, Callable[[Collection[str]], bool]] = field(default_factory=dict)
    """Submodules whose weights a file may hold alone, and whether keys are those of one."""
    new_parts: Collection[str] = ()
    """Submodules that a file of initial weights may lack; of recognition's models, beside a new classifier."""
    name_read: Callable[[str, Collection[str]], str | None] | None = None
    """A tensor's name in a file of the library that the model is from, and the model's own names → the model's name of
    it; None for a tensor of another part, such as a decoder, that is left out."""
    base: str | None = None
    """The prefix of most of its tensors, such as `videomae.`: a file without it holds another network's."""
    infer: str | None = None
    """``module:attribute`` of a function from a whole network's tensors, by our names, to the options that it was built
    with and a description in a line; None where they are of something else."""
    downloads: str | None = None
    """The option that lets it download pretrained weights."""
    token_dropping: bool | None = None
    """Whether a plan may drop tokens in training; None where only the built network tells."""
    brings: Mapping[str, Any] | Callable[[Any], Mapping[str, Any]] = field(default_factory=dict)
    """Recipe keys that its public weights were trained with, such as ``{"sampling.mean": (0.5, 0.5, 0.5)}``, or a
    function of the options that returns them: defaults of recipes that begin with weights (`tasks.brought`)."""
    unseen: Mapping[str, Callable[[Mapping[str, Any]], Any]] = field(default_factory=dict)
    """Options that no tensor shows, such as the clip that positions are for: each with the function from transformers'
    `config.json` beside weights to its value, None where that does not say. Weights bring them, as ``brings``."""

    def read_options(self, name: str, given: Mapping[str, Any]) -> Any:
        """Return the checked options over the presets: an instance of ``options``, or a dictionary without that class.

        Raises:
            RecipeError: if an option is unknown, its value is not accepted, or options contradict each other.
        """
        values = {**self.preset, **given}
        if self.options is not None:
            with user_code(f"options of model {name!r}", self.options):
                return read_options(self.options, name, values)
        if callable(self.build):
            known = _keywords(self.build, given_by_position=models_of(self.task).arguments)
            if known is not None:
                check_names(name, given, known)
        return values

    def needs_with(self, name: str, options: Any) -> ShapeConstraints:
        """What the model needs of a clip's shape with some options, as :meth:`read_options` returns them."""
        found = self.needs
        if callable(found):
            with user_code(f"needs of model {name!r}", found):
                found = found(options)
        return _as_needs(found, name)

    def loaded_key_map(self) -> KeyMap | None:
        """The key map, imported where that is still to be done."""
        return import_attribute(self.key_map, "key map") if isinstance(self.key_map, str) else self.key_map

    def role_of(self, roles: Collection[str]) -> Callable[[str], str | None]:
        """Return the function from a parameter's name to its role, or None, for the roles that a plan has.

        Raises:
            RecipeError: if the model has no such role.
        """
        for role in roles:
            if role not in self.roles:
                known = ", ".join(self.roles) or "none"
                raise RecipeError(f"role {role!r} is unknown{did_you_mean(role, self.roles)}; accepted: {known}")
        return lambda name: next((r for r, known in self.roles.items() if r in roles and known.holds(name)), None)


class ModelRegistry(Registry[ModelSpec]):
    """The models of one task."""

    def __init__(
        self,
        task: str,
        shipped: Mapping[str, ModelSpec] | None = None,
        *,
        arguments: int = 0,
        attributes: Collection[str] = (),
    ) -> None:
        """Start with the shipped models.

        Args:
            task: Its name, as a recipe's key ``task`` has it.
            shipped: The models that come with the task.
            arguments: How many arguments the task itself gives, by position, to what builds its models.
            attributes: What the task asks of its networks besides their call.
        """
        super().__init__("model", f"vcycle.models.{task}")
        self.task, self.arguments, self.attributes = task, arguments, tuple(attributes)
        for name, spec in (shipped or {}).items():
            self.register(name, spec)

    def definition(self, value: Any) -> object:
        """What builds the model."""
        return value.build if isinstance(value, ModelSpec) else value

    def converted(self, value: Any, source: str) -> ModelSpec:
        """Return the spec of what an entry point names."""
        return _spec_of(value, source, self.task)

    def find(self, name: str) -> ModelSpec:
        """Return the model of a registered name, or of ``module:attribute``.

        A module may be installed or in the current folder. Its attribute is an ``nn.Module`` class, a
        :class:`ModelSpec`, or what :func:`register_model` decorates.

        Raises:
            RecipeError: if there is no such model, or it is of another task.
        """
        if ":" in name:
            source = f"model {name!r}"
            spec = _spec_of(import_attribute(name, source, here=True), source, self.task)
        elif name in self:
            spec = self[name]
        else:
            others = [task for task in tasks.values() if task.name != self.task and name in models_of(task.name)]
            raise self._not_ours(name) if others else self._unknown(name)
        if spec.task != self.task:
            raise self._not_ours(name)
        return spec

    def names(self) -> tuple[str, ...]:
        """All names of the task's models: the shipped ones, those that were registered, and those of entry points."""
        return tuple(name for name in super().names() if self._is_ours(name))

    def key_maps(self) -> list[KeyMap]:
        """The key maps of all models, each once."""
        found = (self.find(name).loaded_key_map() for name in self.names())
        return list({id(key_map): key_map for key_map in found if key_map is not None}.values())

    def needs(self, name: str, /, **options: Any) -> ShapeConstraints:
        """What a model needs of a clip's shape.

        Raises:
            RecipeError: if the model or an option is unknown, or an option's value is not accepted.
        """
        spec = self.find(name)
        return spec.needs_with(name, spec.read_options(name, options))

    def needs_of(self, choice: ModelChoice) -> ShapeConstraints:
        """What a recipe's model needs of a clip's shape, with what the recipe adds to it.

        Raises:
            RecipeError: as :meth:`needs`.
        """
        own, more = self.needs(choice.name, **choice.options), choice.needs or NeedsSection()
        return replace(
            own,
            min_frames=max(own.min_frames, more.min_frames),
            frames_multiple=math.lcm(own.frames_multiple, more.frames_multiple),
            min_size=max(own.min_size, more.min_size),
            size_multiple=math.lcm(own.size_multiple, more.size_multiple),
            all_tokens=self.find(choice.name).token_dropping is False,
        )

    def multiples_of(self, choice: ModelChoice, baseline: Baseline) -> Multiples:
        """The multiples to which a plan rounds its shapes for a recipe's model.

        Empty if the baseline itself is no multiple: `Plan.require` then refuses the plan, and names model and step.

        Raises:
            RecipeError: as :meth:`needs`.
        """
        needs = self.needs_of(choice)
        if baseline.frames % needs.frames_multiple or baseline.size % needs.size_multiple:
            return {}
        return needs.multiples

    def build(self, name: str, /, *arguments: Any, **options: Any) -> "nn.Module":
        """Build a model.

        Args:
            name: A registered name, or ``module:attribute``.
            arguments: The task's own; recognition: the number of classes; super-resolution: none.
            options: The model's own.

        Raises:
            RecipeError: if the model or an option is unknown, or a value is not accepted.
        """
        from torch import nn

        from vcycle.train.calling import MODEL_NAME

        spec = self.find(name)
        values = spec.read_options(name, options)
        if isinstance(values, Section):
            values = {key: getattr(values, key) for key in type(values).model_fields}
        make = import_attribute(spec.build, f"model {name!r}") if isinstance(spec.build, str) else spec.build
        if not isinstance(spec.build, str):
            _check_call(name, make, *arguments, **spec.fixed, **values)
        with user_code(f"model {name!r} cannot be built"):
            model = make(*arguments, **spec.fixed, **values)
        if not isinstance(model, nn.Module):
            raise RecipeError(f"model {name!r} was built as {type(model).__name__}; accepted: a torch.nn.Module")
        lazy = [key for key, value in model.named_parameters() if isinstance(value, nn.UninitializedParameter)]
        if lazy:
            raise RecipeError(f"model {name!r}: {lazy[0]} has no shape yet; accepted: layers of known sizes, none lazy")
        for attribute in self.attributes:
            if not hasattr(model, attribute):
                asked = " and ".join(self.attributes)
                raise RecipeError(f"model {name!r} has no attribute {attribute!r}; accepted: a network with {asked}")
        setattr(model, MODEL_NAME, name)
        return model

    def _is_ours(self, name: str) -> bool:
        """Whether a name is of this task. An entry point that cannot be imported is of none."""
        try:
            return self[name].task == self.task
        except VcycleError:
            return False

    def _not_ours(self, name: str) -> RecipeError:
        return RecipeError(f"model {name!r} is not one of {self.task}; accepted: {', '.join(self.names())}")


def is_shipped(recipe: RecipeBase) -> bool:
    """Whether a recipe's network and task come with vcycle, whose tests run it at the shapes that its needs allow."""
    task, name = tasks[recipe.task], recipe.model.name
    models = task.models
    if models is None or name not in models or not type(task).__module__.startswith("vcycle."):
        return False
    build = models.find(name).build
    return (build if isinstance(build, str) else str(build.__module__)).startswith("vcycle.")


def models_of(task: str) -> ModelRegistry:
    """Return the models of a task, by its name in recipes; none of a task without a registry of models.

    Raises:
        RecipeError: if there is no such task.
    """
    return tasks[task].models or ModelRegistry(task)


def register_model(
    name: str,
    *,
    task: str = "recognition",
    options: type[Section] | None = None,
    preset: Mapping[str, Any] | None = None,
    needs: Needs | None = None,
    key_map: KeyMap | str | None = None,
    roles: Mapping[str, ParameterRole] | None = None,
    downloads: str | None = None,
    brings: Mapping[str, Any] | None = None,
) -> Callable[[_Built], _Built]:
    """Register a model class, or a function that builds a model, under a name that recipes can use.

    Args:
        name: The name.
        task: The task that the model is for.
        options: The class of its options, whose names, types and ranges are then checked when a run is planned;
            without it, names alone are checked.
        preset: Options that differ from their class's defaults.
        needs: What the model needs of a clip's shape: ``{"frames_multiple": 4}`` (of ``min_frames``,
            ``frames_multiple``, ``min_size``, ``size_multiple``), :class:`~vcycle.plan.ShapeConstraints`, or a
            function of the options that returns either. By default, the attribute ``needs`` of what is decorated.
        key_map: Other libraries' names of its weights.
        roles: Parameters that a plan may treat apart.
        downloads: The option that lets it download pretrained weights.
        brings: Recipe keys that its public weights were trained with, ``sampling.mean`` and ``sampling.std``: defaults
            of recipes that begin with weights.

    Raises:
        RecipeError: if the name is that of another model, or has a colon, ``brings`` has another key or no value per
            channel, or the task has no registry of models.
    """
    if ":" in name:
        raise RecipeError(f"model {name!r}: a registered name has no colon, which stands for module:attribute")
    if options is not None and not (isinstance(options, type) and issubclass(options, Section)):
        raise RecipeError(f"model {name!r}: options is {options!r}; accepted: a class derived from ModelOptions")

    def decorate(build: _Built) -> _Built:
        _check_brings(name, task, brings or {})
        spec = ModelSpec(
            build=build,
            task=task,
            options=options,
            preset=preset or {},
            needs=_own_needs(build, f"model {name!r}") if needs is None else needs,
            key_map=key_map,
            roles=roles or {},
            downloads=downloads,
            brings=brings or {},
        )
        models = tasks[task].models
        if models is None:
            raise RecipeError(f"model {name!r}: task {task} has no registry of models")
        models.register(name, spec)
        setattr(build, _SPEC, spec)
        return build

    return decorate


def _check_brings(name: str, task: str, brings: Mapping[str, Any]) -> None:
    """Check what a registered model's weights bring.

    Raises:
        RecipeError: for a key that weights of the task do not bring, or a value that is not three numbers.
    """
    accepted = tasks[task].brought
    for key, value in brings.items():
        if key not in accepted:
            raise RecipeError(
                f"model {name!r}: brings has the key {key!r}{did_you_mean(key, accepted)}; accepted: "
                + ", ".join(accepted)
            )
        numbers = value if isinstance(value, tuple | list) else ()
        if len(numbers) != 3 or not all(isinstance(part, int | float) and math.isfinite(part) for part in numbers):
            raise RecipeError(
                f"model {name!r}: brings {key}={value!r}; accepted: a number per channel, (0.5, 0.5, 0.5)"
            )


def _spec_of(value: Any, source: str, task: str) -> ModelSpec:
    """The spec of a class, of a function or of itself.

    Raises:
        RecipeError: if it is neither a spec, a model class nor what :func:`register_model` decorates. Other callables
            are not called: a recipe may come with a file of weights, and chooses models, not functions.
    """
    if isinstance(value, ModelSpec):
        return value
    found = getattr(value, _SPEC, None)
    if isinstance(found, ModelSpec):
        return replace(found, build=value)  # a derived class has its base's spec
    if not _is_module_class(value):
        raise RecipeError(
            f"{source} is {getattr(value, '__qualname__', None) or type(value).__name__}; accepted: a class derived "
            "from torch.nn.Module, what vcycle.register_model decorates, or a ModelSpec"
        )
    return ModelSpec(build=value, task=task, needs=_own_needs(value, source))


def _own_needs(build: Any, source: str) -> Needs:
    """The attribute ``needs`` of what builds a model; no constraints without it."""
    needs = getattr(build, "needs", ShapeConstraints())
    if not (isinstance(needs, ShapeConstraints | Mapping) or callable(needs)):
        raise RecipeError(
            f"{source}: its attribute 'needs' is {needs!r}; accepted: a mapping such as min_frames to 4, or a function "
            "of the options that returns one"
        )
    found: Needs = needs
    return found


def _is_module_class(value: Any) -> bool:
    """Whether a value is a class of networks; one whose module has not imported torch is none."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, type) and issubclass(value, torch.nn.Module)


def _as_needs(found: ShapeConstraints | Mapping[str, int], name: str) -> ShapeConstraints:
    if isinstance(found, ShapeConstraints):
        return found
    known = list(NeedsSection.model_fields)
    if not isinstance(found, Mapping):
        raise RecipeError(f"model {name!r}: its needs are {found!r}; accepted: a mapping such as min_frames to 4")
    for key in found:
        if key not in known:
            near = did_you_mean(key, known)
            raise RecipeError(f"model {name!r} needs {key!r}, which is unknown{near}; accepted: {', '.join(known)}")
    values: dict[str, Any] = dict(found)
    try:
        return ShapeConstraints(**values)
    except PlanError as error:
        raise RecipeError(f"model {name!r}: {error}") from None


def _keywords(build: Callable[..., Any], *, given_by_position: int) -> list[str] | None:
    """The options that a callable takes by name; None for any."""
    try:
        parameters = list(inspect.signature(build).parameters.values())[given_by_position:]
    except (TypeError, ValueError):  # built-ins do not say
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]


def _check_call(name: str, make: Callable[..., Any], *arguments: Any, **values: Any) -> None:
    """Refuse arguments that do not fit a callable's signature, before it is called: it may raise TypeError itself."""
    try:
        signature = inspect.signature(make)
    except (TypeError, ValueError):  # built-ins do not say
        return
    try:
        signature.bind(*arguments, **values)
    except TypeError as error:
        raise RecipeError(f"model {name!r} cannot be built: {error}; its signature is {signature}") from None
