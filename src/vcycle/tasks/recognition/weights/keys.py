"""Translates tensor names of the ResNets and SlowFast between vcycle, PySlowFast and pytorchvideo.

A name encodes the position of a tensor: its kind (stem, fusion, residual block, non-local block, classifier), pathway,
stage, block and layer. Each naming scheme has a template per kind and a vocabulary. A translation parses a name with
one scheme and formats it with another. Tensors never change: their shapes are equal in all three.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from vcycle.tasks.models import KeyMap
from vcycle.tasks.recognition.weights.inflate import is_image_resnet, pyslowfast_names

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["RESNETS", "Dialect", "dialect_of", "foreign_keys", "to_ours"]

Dialect = Literal["vcycle", "pyslowfast", "pytorchvideo"]


def dialect_of(keys: Iterable[str]) -> Dialect | None:
    """Detect the naming scheme: the one that matches most keys; None if none matches.

    A classifier alone matches none, because its names in PySlowFast and vcycle are equal.

    Example:
        >>> dialect_of(["s1.pathway0_stem.conv.weight", "head.projection.weight"])
        'pyslowfast'
    """
    naming = _naming_of(keys)
    return None if naming is None else naming.dialect


def to_ours(keys: Iterable[str]) -> dict[str, str] | None:
    """Map keys of any known library to vcycle's; None for unknown keys.

    Keys that have no place in our models are left out. PySlowFast names an only pathway as it does a slow one: the name
    becomes the slow pathway's where a fast one's is among the keys.

    Example:
        >>> to_ours(["blocks.2.res_blocks.0.branch2.norm_a.bias", "other"])
        {'blocks.2.res_blocks.0.branch2.norm_a.bias': 'stages.1.0.branch.0.1.bias'}
    """
    keys = list(keys)
    naming = _naming_of(keys)
    return None if naming is None else naming.translated(keys, _ours(naming.pathways))


def foreign_keys(
    keys: Iterable[str], dialect: Literal["pyslowfast", "pytorchvideo"], *, temporal_pool: bool = False
) -> dict[str, str]:
    """Return another library's name of each of our keys.

    Keys that have no place there are left out: the stages after the fourth, and in pytorchvideo, the non-local blocks.

    Args:
        keys: Names in the state of one of our models.
        dialect: Whose names are wanted.
        temporal_pool: Whether the model pools in time after its first stage (I3D, C2D): pytorchvideo counts the
            pooling, and so its later layers are one further.

    Example:
        >>> foreign_keys(["stages.3.0.shortcut.1.weight"], "pytorchvideo", temporal_pool=True)
        {'stages.3.0.shortcut.1.weight': 'blocks.5.res_blocks.0.branch1_norm.weight'}
    """
    keys = list(keys)
    pathways = 2 if any(_ours(2).place(key, but="head") for key in keys) else 1
    there = {
        ("pyslowfast", 1): "pyslowfast",
        ("pyslowfast", 2): "pyslowfast, two pathways",
        ("pytorchvideo", 1): "pytorchvideo, pooled" if temporal_pool else "pytorchvideo",
        ("pytorchvideo", 2): "pytorchvideo, two pathways",
    }
    return _ours(pathways).translated(keys, _NAMINGS[there[dialect, pathways]])


_Place = tuple[tuple[str, str | int], ...]
"""The kind of a tensor and its fields: numbers for what namings write differently, text for what they write alike."""


@dataclass(frozen=True, kw_only=True)
class _Naming:
    """How one library names the tensors of networks of one layout."""

    dialect: Dialect
    pathways: int
    templates: Mapping[str, str]
    """The name of each kind of tensor. Fields without words are written alike by everyone."""
    words: Mapping[str, tuple[str, ...]]
    """What a field's values are called, in the same order in every naming."""

    def place(self, key: str, *, but: str | None = None) -> _Place | None:
        """Read a name; None if it is not one of this naming's, or is of the kind ``but``."""
        for kind, template in self.templates.items():
            found = None if kind == but else _pattern(template, tuple(self.words.items())).fullmatch(key)
            if found is not None:
                fields = found.groupdict()
                return ("kind", kind), *(
                    (field, self.words[field].index(text) if field in self.words else text)
                    for field, text in fields.items()
                )
        return None

    def name(self, place: _Place) -> str | None:
        """Write a name; None if the place has none."""
        fields = dict(place)
        template = self.templates.get(str(fields.pop("kind")))
        if template is None:
            return None
        texts = {}
        for field, value in fields.items():
            if isinstance(value, int):
                if value >= len(self.words[field]):
                    return None
                value = self.words[field][value]
            texts[field] = value
        return template.format(**texts)

    def translated(self, keys: Iterable[str], other: "_Naming") -> dict[str, str]:
        """Return another naming's name of each key that has a place in both."""
        places = ((key, self.place(key)) for key in keys)
        names = ((key, None if place is None else other.name(place)) for key, place in places)
        return {key: name for key, name in names if name is not None}


@cache
def _pattern(template: str, words: tuple[tuple[str, tuple[str, ...]], ...]) -> re.Pattern[str]:
    known = {field: "|".join(re.escape(word) for word in texts) for field, texts in words}
    literals = re.split(r"\{(\w+)\}", template)
    parts = [
        re.escape(part) if index % 2 == 0 else f"(?P<{part}>{known.get(part, _ALIKE.get(part, ''))})"
        for index, part in enumerate(literals)
    ]
    return re.compile("".join(parts))


def _naming_of(keys: Iterable[str]) -> _Naming | None:
    keys = list(keys)
    counts = {name: sum(naming.place(key, but="head") is not None for key in keys) for name, naming in _NAMINGS.items()}
    best = max(counts, key=lambda name: counts[name])
    return _NAMINGS[best] if counts[best] else None


def _ours(pathways: int) -> _Naming:
    return _NAMINGS["vcycle" if pathways == 1 else "vcycle, two pathways"]


_ALIKE = {"block": r"\d+", "leaf": r"\w+"}
_STAGES = tuple("0123456789")
_CONV_NORM = {"stem": ("0", "1"), "fuse": ("0", "1")}
_OURS = {
    "stage": _STAGES,
    "fusion": _STAGES,
    "layer": (
        *("branch.0.0", "branch.0.1", "branch.1.0", "branch.1.1", "branch.2.0", "branch.2.1"),
        *("shortcut.0", "shortcut.1"),
    ),
    "part": ("theta", "phi", "g", "out", "norm"),
    **_CONV_NORM,
}
_PYSLOWFAST = {
    "stage": ("2", "3", "4", "5"),
    "fusion": ("1", "2", "3", "4"),
    "layer": (
        *("branch2.a", "branch2.a_bn", "branch2.b", "branch2.b_bn", "branch2.c", "branch2.c_bn"),
        *("branch1", "branch1_bn"),
    ),
    "part": ("conv_theta", "conv_phi", "conv_g", "conv_out", "bn"),
    "stem": ("conv", "bn"),
    "fuse": ("conv_f2s", "bn"),
}
_PYTORCHVIDEO = {
    "stage": ("1", "2", "3", "4"),
    "fusion": ("0", "1", "2", "3"),
    "layer": (
        *("branch2.conv_a", "branch2.norm_a", "branch2.conv_b", "branch2.norm_b", "branch2.conv_c", "branch2.norm_c"),
        *("branch1_conv", "branch1_norm"),
    ),
    "stem": ("conv", "norm"),
    "fuse": ("conv_fast_to_slow", "norm"),
}
_OUR_NAMES = {
    "stem": "{path}stem.0.{stem}.{leaf}",
    "fusion": "fusions.{fusion}.{fuse}.{leaf}",
    "block": "{path}stages.{stage}.{block}.{layer}.{leaf}",
    "nonlocal": "{path}stages.{stage}.nonlocal{block}.{part}.{leaf}",
    "head": "head.projection.{leaf}",
}
_PYSLOWFAST_NAMES = {
    "stem": "s1.pathway{path}_stem.{stem}.{leaf}",
    "fusion": "s{fusion}_fuse.{fuse}.{leaf}",
    "block": "s{stage}.pathway{path}_res{block}.{layer}.{leaf}",
    "nonlocal": "s{stage}.pathway{path}_nonlocal{block}.{part}.{leaf}",
    "head": "head.projection.{leaf}",
}


def _pytorchvideo(head: int, stages: tuple[str, ...]) -> _Naming:
    return _Naming(
        dialect="pytorchvideo",
        pathways=1,
        templates={
            "stem": "blocks.0.{path}{stem}.{leaf}",
            "block": "blocks.{stage}.{path}res_blocks.{block}.{layer}.{leaf}",
            "head": f"blocks.{head}.proj.{{leaf}}",
        },
        words={**_PYTORCHVIDEO, "path": ("",), "stage": stages},
    )


_NAMINGS: Mapping[str, _Naming] = {
    "vcycle": _Naming(dialect="vcycle", pathways=1, templates=_OUR_NAMES, words={**_OURS, "path": ("",)}),
    "vcycle, two pathways": _Naming(
        dialect="vcycle", pathways=2, templates=_OUR_NAMES, words={**_OURS, "path": ("slow_", "fast_")}
    ),
    "pyslowfast": _Naming(
        dialect="pyslowfast", pathways=1, templates=_PYSLOWFAST_NAMES, words={**_PYSLOWFAST, "path": ("0",)}
    ),
    "pyslowfast, two pathways": _Naming(
        dialect="pyslowfast", pathways=2, templates=_PYSLOWFAST_NAMES, words={**_PYSLOWFAST, "path": ("0", "1")}
    ),
    "pytorchvideo": _pytorchvideo(5, ("1", "2", "3", "4")),
    "pytorchvideo, pooled": _pytorchvideo(6, ("1", "3", "4", "5")),
    "pytorchvideo, two pathways": _Naming(
        dialect="pytorchvideo",
        pathways=2,
        templates={
            "stem": "blocks.0.multipathway_blocks.{path}.{stem}.{leaf}",
            "fusion": "blocks.{fusion}.multipathway_fusion.{fuse}.{leaf}",
            "block": "blocks.{stage}.multipathway_blocks.{path}.res_blocks.{block}.{layer}.{leaf}",
            "head": "blocks.6.proj.{leaf}",
        },
        words={**_PYTORCHVIDEO, "path": ("0", "1")},
    ),
}
"""Where several name as many keys, the first: one pathway, unless a second is there."""


def _foreign(keys: Iterable[str], library: Any, options: Any) -> dict[str, str]:
    if library not in RESNETS.libraries:
        return {}
    return foreign_keys(keys, library, temporal_pool=getattr(options, "temporal_pool", 1) > 1)


def _inflated(state: Mapping[str, "Tensor"], fast: bool) -> dict[str, str] | None:
    if not is_image_resnet(state):
        return None
    theirs = pyslowfast_names(state)
    # A name alone does not tell a slow pathway from an only one; a fast pathway's beside it does.
    beside = ["s1.pathway1_stem.conv.weight"] if fast else []
    ours = to_ours([*theirs.values(), *beside]) or {}
    return {key: ours.get(name, name) for key, name in theirs.items()}


RESNETS = KeyMap(
    libraries={"pyslowfast": "PySlowFast", "pytorchvideo": "pytorchvideo"},
    dialect_of=dialect_of,
    to_ours=to_ours,
    foreign_keys=_foreign,
    inflated=_inflated,
)
"""Names of the 3-D ResNets and of SlowFast."""
