"""Weights into a model: every tensor has its place, or the file is refused with what would fit it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vcycle.errors import CheckpointError, RecipeError
from vcycle.nn.heads import classifier_of
from vcycle.nn.weights.files import Weights
from vcycle.nn.weights.matching import check_values
from vcycle.nn.weights.record import UNSEEN, Record
from vcycle.tasks.recognition.models.catalog import build, names, options_of
from vcycle.tasks.recognition.weights.inflate import inflate, is_image_resnet, pyslowfast_names
from vcycle.tasks.recognition.weights.keys import dialect_of, to_ours

__all__ = ["Head", "Taken", "take_weights"]

Head = Literal["keep", "new"]
"""What becomes of a file's classifier: it is taken, or the model's own stays as it was drawn."""

_COUNTER = "num_batches_tracked"
"""BatchNorm's counter, which not every library writes; it plays no part at a constant momentum."""
_SHOWN = 3
_WORDS = {"pyslowfast": "PySlowFast's names", "pytorchvideo": "pytorchvideo's names", "vcycle": "vcycle's names"}
_NEW = "init.head=new draws a new one"


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What a model took from a file."""

    source: str
    """The file."""
    tensors: int
    """How many tensors were taken."""
    naming: str
    """Whose names they had."""
    new: tuple[str, ...] = ()
    """Parts of the model that stay as they were drawn."""
    warnings: tuple[str, ...] = ()
    """What does not stop the weights from being used, and should be known."""

    @property
    def summary(self) -> str:
        """What was taken, in a line."""
        new = "; drawn anew: " + ", ".join(self.new) if self.new else ""
        return f"{self.tensors:,} tensors from {self.source} ({self.naming}){new}"


@dataclass(frozen=True, kw_only=True)
class _Match:
    """A file's tensors beside a model's."""

    found: Mapping[str, Tensor]
    """Those that have their place, under the model's names and in its shapes."""
    missing: Sequence[str]
    unexpected: Sequence[str]
    shapes: Sequence[str]
    """Those of another shape, in words."""
    classifier: str
    """What keeps the classifier from being taken, in words; empty if nothing does."""
    naming: str

    @property
    def faults(self) -> list[str]:
        """What keeps all but the classifier from fitting."""
        count = f"{len(self.shapes):,} {'shape differs' if len(self.shapes) == 1 else 'shapes differ'}"
        faults = [f"{count} ({'; '.join(self.shapes[:_SHOWN])})"] if self.shapes else []
        for word, keys in (("missing", self.missing), ("unexpected", self.unexpected)):
            if keys:
                faults.append(f"{len(keys):,} {word} ({_some(keys)})")
        return faults


def take_weights(model: nn.Module, weights: Weights, *, name: str | None = None, head: Head = "keep") -> Taken:
    """Load weights into a model, in place, whoever's names they have.

    Weights under the model's own names, PySlowFast's or pytorchvideo's are taken whole. Those of a 2-D ResNet under the
    names of torchvision and timm are inflated; of a SlowFast they fill the slow pathway.

    Args:
        model: A model of the catalog, its BatchNorms converted or not. On the meta device all is checked and nothing is
            copied.
        weights: What a file holds.
        name: The model's name in the catalog; without it, none of the catalog's that would fit is looked for.
        head: Whether to take the file's classifier.

    Raises:
        CheckpointError: if a tensor is missing, unexpected or of another shape, the classifier is for another number of
            classes, or the file says that it belongs to another model. Names the models of the catalog that would fit.
    """
    own = model.state_dict()
    match = _match(own, weights, classifier_of(model), head)
    differences = _differences(model, weights.record)
    faults = match.faults or (differences if head == "keep" else [])
    if faults:
        others = [] if name is None else _fitting(weights, len(own[f"{classifier_of(model)}.weight"]), but=name)
        if others:
            faults = [*faults, f"they fit {', '.join(others)}"]
        raise CheckpointError(f"weights {weights.source} do not fit {name or 'the model'}: {'; '.join(faults)}")
    if match.classifier:
        raise CheckpointError(f"weights {weights.source}: {match.classifier}: {_NEW}")
    check_values(match.found, own, weights.source)
    with torch.no_grad():
        for key, value in match.found.items():
            own[key].copy_(value)
    return Taken(
        source=weights.source,
        tensors=len(match.found),
        naming=match.naming,
        new=_parts(key for key in own if key not in match.found and not key.endswith(_COUNTER)),
        warnings=tuple(f"weights {weights.source}: {text}" for text in (*differences, *_order(weights.record))),
    )


def _match(own: Mapping[str, Tensor], weights: Weights, classifier: str, head: Head) -> _Match:
    """Lay a file's tensors beside a model's.

    Raises:
        CheckpointError: if it is not known whose names they are.
    """
    image = is_image_resnet(weights.state)
    places, naming = _places(own, weights, classifier)
    tensors = {places[key]: value for key, value in weights.state.items() if key in places}
    if image:
        tensors = {key: inflate(value, own[key]) if key in own else value for key, value in tensors.items()}
    weight, bias = f"{classifier}.weight", f"{classifier}.bias"
    refused = ""
    if image:
        refused = "an image network's classifier does not fit clips" if head == "keep" else ""
    elif head == "keep" and bias not in tensors:
        refused = "they have no classifier"
    elif head == "keep" and tensors[bias].shape != own[bias].shape:
        theirs, ours = len(tensors[bias]), len(own[bias])
        refused = f"their classifier tells {theirs:,} classes apart, the data has {ours:,}"
    if refused or head == "new":
        tensors = {key: value for key, value in tensors.items() if key not in (weight, bias)}
    found = {key: value for key, value in tensors.items() if key in own and value.shape == own[key].shape}
    missing = [key for key in own if key not in tensors and key not in (weight, bias) and not key.endswith(_COUNTER)]
    if image:  # of the parts that an image network has, all is there
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
    )


def _places(own: Mapping[str, Tensor], weights: Weights, classifier: str) -> tuple[Mapping[str, str], str]:
    """The model's names of a file's tensors, and whose names the file has.

    Raises:
        CheckpointError: if that is not known.
    """
    state = weights.state
    if is_image_resnet(state):
        theirs = pyslowfast_names(state)
        # A name alone does not tell a slow pathway from an only one; a fast pathway's beside it does.
        beside = ["s1.pathway1_stem.conv.weight"] if any(key.startswith("fast_") for key in own) else []
        ours = to_ours([*theirs.values(), *beside]) or {}
        return {key: ours.get(name, name) for key, name in theirs.items()}, "a 2-D ResNet's, inflated"
    # A classifier is no sign: PySlowFast's has the name of ours.
    if any(key in own and not key.startswith(classifier) for key in state):
        return {key: key for key in state}, "the model's own names"
    dialect, translated = dialect_of(state), to_ours(state)
    if dialect is not None and translated is not None:
        return translated, _WORDS[dialect]
    raise CheckpointError(
        f"weights {weights.source} have names that are not known here ({_some(list(state))}); accepted: the names of "
        "vcycle, PySlowFast, pytorchvideo, torchvision's video models, and 2-D ResNets of torchvision and timm"
    )


def _fitting(weights: Weights, classes: int, *, but: str) -> list[str]:
    """The models of the catalog that would take the weights."""
    known = is_image_resnet(weights.state) or dialect_of(weights.state) is not None
    candidates = [name for name in names() if name != but and known is not ("weights" in options_of(name))]
    return [name for name in candidates if _fits(name, weights, classes)]


def _fits(name: str, weights: Weights, classes: int) -> bool:
    try:
        with torch.device("meta"):
            model = build(name, classes)
        match = _match(model.state_dict(), weights, classifier_of(model), "new")
    except (CheckpointError, RecipeError):  # unknown names; torchvision is not installed
        return False
    return not match.faults and not _differences(model, weights.record)


def _differences(model: nn.Module, record: Record) -> list[str]:
    """What the weights were trained with and the model has otherwise, where tensors do not show it."""
    return [
        f"they were trained with {what} {_shown(theirs)}, the model has {_shown(ours)}"
        for what in UNSEEN
        if (theirs := getattr(record, what)) is not None
        and (ours := getattr(model, what, None)) is not None
        and ours != theirs
    ]


def _shown(value: Any) -> str:
    """A value as a recipe has it."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(list(value) if isinstance(value, tuple) else value)


def _order(record: Record) -> list[str]:
    if not record.bgr:
        return []
    return [
        "they were trained on frames in the order blue, green, red, and vcycle's are red, green, blue: they do worse "
        "until they have been trained on"
    ]


def _parts(keys: Iterable[str]) -> tuple[str, ...]:
    """The parts of a model that keys belong to, each once."""
    return tuple(dict.fromkeys("non-local blocks" if ".nonlocal" in key else key.partition(".")[0] for key in keys))


def _extent(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "a number"


def _some(keys: Sequence[str]) -> str:
    return ", ".join(keys[:_SHOWN]) + (", …" if len(keys) > _SHOWN else "")
