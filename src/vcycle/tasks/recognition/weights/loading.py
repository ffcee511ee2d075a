"""Loads weights into a model. Every tensor must match; otherwise the error lists models that fit."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vcycle.errors import CheckpointError, RecipeError
from vcycle.nn.classifier import classifier_of
from vcycle.nn.weights.files import Weights
from vcycle.nn.weights.matching import load_state
from vcycle.tasks.models import KeyMap
from vcycle.tasks.recognition.models import MODELS, build_model
from vcycle.tasks.recognition.weights.inflate import inflate
from vcycle.tasks.recognition.weights.record import UNSEEN, Record, record_in

__all__ = ["Head", "LoadReport", "load_pretrained"]

Head = Literal["keep", "new"]
"""How to treat the file's classifier: load it, or keep the model's randomly initialised one."""

_COUNTER = "num_batches_tracked"
"""BatchNorm's counter, which not every library writes; it is unused with a constant momentum."""
_SHOWN = 3
_NEW = "init.head=new initialises a new one"


@dataclass(frozen=True, kw_only=True)
class LoadReport:
    """Report of loading weights into a model."""

    source: str
    """The file."""
    tensors: int
    """Number of tensors loaded."""
    naming: str
    """The naming scheme of the tensors."""
    new: tuple[str, ...] = ()
    """Parts of the model that stay randomly initialised."""
    left_out: tuple[str, ...] = ()
    """Parts of the file that the model does not have, such as the decoder of a pretraining."""
    warnings: tuple[str, ...] = ()
    """Differences that do not prevent the use of the weights."""

    @property
    def summary(self) -> str:
        """A summary in one line."""
        new = "; newly initialised: " + ", ".join(self.new) if self.new else ""
        left = "; left out: " + ", ".join(self.left_out) if self.left_out else ""
        return f"{self.tensors:,} tensors from {self.source} ({self.naming}){new}{left}"


@dataclass(frozen=True, kw_only=True)
class _Match:
    """A file's tensors matched with a model's."""

    found: Mapping[str, Tensor]
    """Tensors that match, by the model's names."""
    missing: Sequence[str]
    unexpected: Sequence[str]
    shapes: Sequence[str]
    """Shape mismatches, in words."""
    classifier: str
    """The reason why the classifier cannot be loaded, in words; empty if it can."""
    naming: str
    image: bool
    """Whether the weights are those of an image model."""

    @property
    def faults(self) -> list[str]:
        """All mismatches except those of the classifier."""
        count = f"{len(self.shapes):,} {'shape differs' if len(self.shapes) == 1 else 'shapes differ'}"
        faults = [f"{count} ({'; '.join(self.shapes[:_SHOWN])})"] if self.shapes else []
        for word, keys in (("missing", self.missing), ("unexpected", self.unexpected)):
            if keys:
                faults.append(f"{len(keys):,} {word} ({_some(keys)})")
        return faults


def load_pretrained(
    model: nn.Module, weights: Weights, *, name: str | None = None, head: Head = "keep", record: Record | None = None
) -> LoadReport:
    """Load weights into a model, in place, from the naming scheme of any supported library.

    Tensors may have the model's own names, or names from its key map (for SlowFast and the 3-D ResNets, those of
    PySlowFast and pytorchvideo). Weights of a 2-D ResNet from torchvision or timm are inflated for these families; in a
    SlowFast they fill the slow pathway.

    Args:
        model: The model, with its BatchNorms converted or not. On the meta device, the weights are only checked.
        weights: The weights.
        name: The model's name in the registry, or ``module:attribute``. Without it, the key maps of all registered
            models are tried, and an error does not suggest other models.
        head: Whether to load the file's classifier.
        record: How the weights were trained; by default from the file's configuration.

    Raises:
        CheckpointError: if a tensor is missing, unexpected or of another shape, the number of classes differs, or the
            weights were trained as another model. Suggests registered models that fit.
    """
    record = record_in(weights.config) if record is None else record
    own = model.state_dict()
    weights, left_out = _read_names(own, weights, name)
    match = _match(own, weights, classifier_of(model), head, name)
    differences = _differences(model, record)
    faults = match.faults or (differences if head == "keep" else [])
    if faults:
        others = []
        if name is not None:
            others = _fitting(weights, record, len(own[f"{classifier_of(model)}.weight"]), but=name)
        if others:
            faults = [*faults, f"they fit {', '.join(others)}"]
        raise CheckpointError(f"weights {weights.source} do not fit {name or 'the model'}: {'; '.join(faults)}")
    if match.classifier:
        raise CheckpointError(f"weights {weights.source}: {match.classifier}: {_NEW}")
    load_state(model, match.found, weights.source)
    return LoadReport(
        source=weights.source,
        tensors=len(match.found),
        naming=match.naming,
        new=_parts(key for key in own if key not in match.found and not key.endswith(_COUNTER)),
        left_out=tuple(dict.fromkeys(_part(key, own) for key in left_out)),
        warnings=tuple(f"weights {weights.source}: {text}" for text in (*differences, *_order(record))),
    )


def _read_names(own: Mapping[str, Tensor], weights: Weights, name: str | None) -> tuple[Weights, list[str]]:
    """Name a file's tensors as the model of that name has them, and list those that it leaves out."""
    name_read = None if name is None else MODELS.find(name).name_read
    if name_read is None:
        return weights, []
    names = {key: name_read(key, own.keys()) for key in weights.state}
    state = {ours: weights.state[key] for key, ours in names.items() if ours is not None}
    return replace(weights, state=state), [key for key, ours in names.items() if ours is None]


def _match(own: Mapping[str, Tensor], weights: Weights, classifier: str, head: Head, name: str | None) -> _Match:
    """Match a file's tensors with a model's.

    Raises:
        CheckpointError: if their naming scheme is unknown.
    """
    places, naming, image = _places(own, weights, classifier, _key_maps(name))
    tensors = {places[key]: value for key, value in weights.state.items() if key in places}
    if image:
        tensors = {key: inflate(value, own[key]) if key in own else value for key, value in tensors.items()}
    weight, bias = f"{classifier}.weight", f"{classifier}.bias"
    refused = ""
    if image:
        refused = "the classifier of an image model does not fit clips" if head == "keep" else ""
    elif head == "keep" and bias not in tensors:
        refused = "they have no classifier"
    elif head == "keep" and tensors[bias].shape != own[bias].shape:
        theirs, ours = len(tensors[bias]), len(own[bias])
        refused = f"their classifier has {theirs:,} classes, the data has {ours:,}"
    if refused or head == "new":
        tensors = {key: value for key, value in tensors.items() if key not in (weight, bias)}
    found = {key: value for key, value in tensors.items() if key in own and value.shape == own[key].shape}
    missing = [key for key in own if key not in tensors and key not in (weight, bias) and not key.endswith(_COUNTER)]
    for part in MODELS.find(name).new_parts if name is not None and head == "new" else ():
        if not any(key.startswith(f"{part}.") for key in tensors):
            missing = [key for key in missing if not key.startswith(f"{part}.")]
    if image:  # only the parts that an image model has must be complete
        parts = {key.partition(".")[0] for key in tensors}
        missing = [key for key in missing if key.partition(".")[0] in parts and ".nonlocal" not in key]
    return _Match(
        found=found,
        missing=missing,
        unexpected=[
            key
            for key in weights.state
            if places.get(key) not in own and not key.endswith(_COUNTER) and not (image and key.startswith("fc."))
        ],
        shapes=[
            f"{key} is {_extent(tensors[key])}, the model has {_extent(value)}"
            for key, value in own.items()
            if key in tensors and key not in found
        ],
        classifier=refused,
        naming=naming,
        image=image,
    )


def _key_maps(name: str | None) -> list[KeyMap]:
    """The key map of a model, or those of all registered models."""
    if name is None:
        return MODELS.key_maps()
    found = MODELS.find(name).loaded_key_map()
    return [] if found is None else [found]


def _places(
    own: Mapping[str, Tensor], weights: Weights, classifier: str, key_maps: Sequence[KeyMap]
) -> tuple[Mapping[str, str], str, bool]:
    """Translate a file's tensor names: the model's names, the naming scheme, and whether it is an image model.

    Raises:
        CheckpointError: if the naming scheme is unknown.
    """
    state = weights.state
    for key_map in key_maps:
        fast = any(key.startswith("fast_") for key in own)
        inflated = None if key_map.inflated is None else key_map.inflated(state, fast)
        if inflated is not None:
            return inflated, "a 2-D ResNet's, inflated", True
    # The classifier does not count: its name in PySlowFast equals ours.
    if (
        not key_maps
        or state.keys() == own.keys()
        or any(key in own and not key.startswith(classifier) for key in state)
    ):
        return {key: key for key in state}, "the model's own names", False
    for key_map in key_maps:
        library, translated = key_map.dialect_of(state), key_map.to_ours(state)
        if library is not None and translated is not None:
            return translated, f"{key_map.libraries.get(library, library)}'s names", False
    libraries = ["vcycle", *(library for key_map in key_maps for library in key_map.libraries.values())]
    images = ", and 2-D ResNets of torchvision and timm" if any(key_map.inflated for key_map in key_maps) else ""
    raise CheckpointError(
        f"weights {weights.source} have unknown tensor names ({_some(list(state))}); accepted: the names of the model "
        f"itself, of {', '.join(libraries)}{images}"
    )


def _fitting(weights: Weights, record: Record, classes: int, *, but: str) -> list[str]:
    """The registered models that the weights fit."""
    known = any(
        key_map.dialect_of(weights.state) is not None or (key_map.inflated and key_map.inflated(weights.state, False))
        for key_map in _key_maps(None)
    )
    specs = {name: MODELS.find(name) for name in MODELS.names() if name != but}
    candidates = [
        name
        for name, spec in specs.items()
        if known is (spec.key_map is not None)
        and (spec.base is None or any(key.startswith(spec.base) for key in weights.state))
    ]
    return [name for name in candidates if _fits(name, weights, record, classes)]


def _fits(name: str, weights: Weights, record: Record, classes: int) -> bool:
    shown = {what: value for what in MODELS.find(name).unseen if (value := getattr(record, what)) is not None}
    try:
        with torch.device("meta"):
            model = build_model(name, classes, **shown)
        weights, _ = _read_names(model.state_dict(), weights, name)
        match = _match(model.state_dict(), weights, classifier_of(model), "new", name)
    except (CheckpointError, RecipeError):  # unknown names; torchvision is not installed
        return False
    return not match.faults and not _differences(model, record)


def _differences(model: nn.Module, record: Record) -> list[str]:
    """Settings that differ between the weights' training and the model, and that tensors do not show."""
    return [
        f"they were trained with {what} {_shown(theirs)}, the model has {_shown(ours)}"
        for what in UNSEEN
        if (theirs := getattr(record, what)) is not None
        and (ours := getattr(model, what, None)) is not None
        and ours != theirs
    ]


def _shown(value: Any) -> str:
    """Format a value as in a recipe."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(list(value) if isinstance(value, tuple) else value)


def _order(record: Record) -> list[str]:
    if not record.bgr:
        return []
    return ["they were trained on BGR frames, but vcycle uses RGB: accuracy is lower until they are fine-tuned"]


def _parts(keys: Iterable[str]) -> tuple[str, ...]:
    """The parts of a model that keys belong to, without duplicates."""
    return tuple(dict.fromkeys("non-local blocks" if ".nonlocal" in key else key.partition(".")[0] for key in keys))


def _part(key: str, own: Iterable[str]) -> str:
    """The part of a file that a key belongs to and that the model does not have."""
    first = key.partition(".")[0]
    return key.rpartition(".")[0] if any(name.startswith(f"{first}.") for name in own) else first


def _extent(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "a number"


def _some(keys: Sequence[str]) -> str:
    return ", ".join(keys[:_SHOWN]) + (", …" if len(keys) > _SHOWN else "")
