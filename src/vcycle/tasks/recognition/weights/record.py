"""Reads how weights were trained from the metadata of their file: settings that tensors do not show."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vcycle.utils.reading import read_yaml

__all__ = ["UNSEEN", "Record", "hugging_face_record", "pyslowfast_record", "record_in"]

UNSEEN = ("alpha", "nonlocal_form", "temporal_strides", "temporal_pool", "stem_pool", "heads", "trained_clip")
"""Settings that no tensor shows: attributes of models and of records."""

_LONGEST = 1 << 17
"""Characters of a configuration; PySlowFast's have some ten thousand."""
_READ_BY_OPENCV = {"ssv2", "charades"}
"""PySlowFast's datasets whose pictures come as BGR unless it is told to reverse them; its video files come as RGB."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """How a model was trained, as far as it is known."""

    alpha: int | None = None
    """Frames of the fast pathway per frame of the slow one."""
    nonlocal_form: str | None = None
    """`softmax` or `dot`: how its non-local blocks weigh."""
    temporal_strides: tuple[int, ...] | None = None
    """Stride in time of each stage."""
    temporal_pool: int | None = None
    """Frames that are pooled into one after the first stage."""
    stem_pool: bool | None = None
    """Whether height and width are halved once more after the stem."""
    heads: int | None = None
    """Attention heads of a transformer."""
    trained_clip: tuple[int, int] | None = None
    """Frames and side of the clips that a transformer's positions are for."""
    classes: tuple[str, ...] = ()
    """The names of its classes, in the order of its outputs; words may be joined in other ways than in the data."""
    bgr: bool = False
    """Whether its frames had blue before red."""
    mean: tuple[float, ...] | None = None
    """What was subtracted from the colors, of values in 0..1."""
    std: tuple[float, ...] | None = None
    """What they were divided by."""


def record_in(text: str | None) -> Record:
    """Parse the configuration of weights, PySlowFast's or transformers'; an empty record if it is neither."""
    try:
        config = json.loads(text or "")
    except (ValueError, RecursionError):
        config = None
    if isinstance(config, Mapping) and "model_type" in config:
        return hugging_face_record(config)
    return pyslowfast_record(text)


def hugging_face_record(config: Mapping[str, Any]) -> Record:
    """What a `config.json` of transformers says."""
    heads, frames, side = (config.get(key) for key in ("num_attention_heads", "num_frames", "image_size"))
    return Record(
        heads=heads if isinstance(heads, int) else None,
        trained_clip=(frames, side) if isinstance(frames, int) and isinstance(side, int) else None,
        classes=_classes(config.get("id2label")),
    )


def _classes(names: Any) -> tuple[str, ...]:
    """The classes of transformers' `id2label`; none where they are its placeholders."""
    if not isinstance(names, Mapping):
        return ()
    found = tuple(str(names.get(str(label), "")) for label in range(len(names)))
    return () if any(not name or name.startswith("LABEL_") for name in found) else found


def pyslowfast_record(text: str | None) -> Record:
    """Parse the configuration in a PySlowFast checkpoint; an empty record if it is missing or unreadable.

    Args:
        text: YAML of plain values. Aliases are refused: a few lines of them can expand without bound.
    """
    if text is None:
        return Record()
    try:
        config = read_yaml(text, _LONGEST)
    except (ValueError, RecursionError):
        return Record()
    if not isinstance(config, Mapping):
        return Record()
    alpha = _at(config, "SLOWFAST", "ALPHA") if _at(config, "MODEL", "ARCH") == "slowfast" else None
    weighing = _at(config, "NONLOCAL", "INSTANTIATION") if _has_blocks(_at(config, "NONLOCAL", "LOCATION")) else None
    opencv = str(_at(config, "TRAIN", "DATASET")).lower() in _READ_BY_OPENCV
    return Record(
        alpha=alpha if isinstance(alpha, int) else None,
        nonlocal_form={"softmax": "softmax", "dot_product": "dot"}.get(str(weighing)),
        bgr=opencv != (_at(config, "DATA", "REVERSE_INPUT_CHANNEL") is True),
        mean=_colors(_at(config, "DATA", "MEAN")),
        std=_colors(_at(config, "DATA", "STD")),
    )


def _at(config: Mapping[str, Any], section: str, key: str) -> Any:
    inner = config.get(section)
    return inner.get(key) if isinstance(inner, Mapping) else None


def _has_blocks(location: Any) -> bool:
    """Whether a nested list names any block."""
    return any(map(_has_blocks, location)) if isinstance(location, list) else location is not None


def _colors(values: Any) -> tuple[float, ...] | None:
    if isinstance(values, list) and len(values) == 3 and all(isinstance(v, int | float) for v in values):
        return tuple(float(v) for v in values)
    return None
