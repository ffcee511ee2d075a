"""Maps the state-dict keys of SpyNet, BasicVSR and EDVR between vcycle, BasicSR and mmagic.

Each layer is a row of three names, with ``{n}`` for a number; a key is a layer's name plus ``weight``, ``bias``,
``mean`` or ``std``. Only names change: tensors have the same shapes in all three libraries.
"""

import re
from collections.abc import Iterable
from functools import cache, partial
from typing import Any, Literal

from vcycle.tasks.models import KeyMap

__all__ = ["KEY_MAP", "Dialect", "dialect_of", "foreign_keys", "to_ours"]

Dialect = Literal["vcycle", "basicsr", "mmagic"]

_DIALECTS: tuple[Dialect, ...] = ("vcycle", "basicsr", "mmagic")
_FLOW = {"vcycle": "flow.", "basicsr": "spynet.", "mmagic": "spynet."}
"""Prefix of the flow network inside another model. A file of the flow network alone has no prefix."""


def dialect_of(keys: Iterable[str]) -> Dialect | None:
    """Return the library that names most of the keys; None if no library names any.

    Example:
        >>> dialect_of(["upsample1.upsample_conv.weight", "conv_hr.weight"])
        'mmagic'
    """
    found = _read(list(_unwrapped(list(keys), ema=False).values()))
    return None if found is None else found[0]


def to_ours(keys: Iterable[str], *, ema: bool = False) -> dict[str, str] | None:
    """Map keys of any of the three libraries to vcycle's; None for unknown keys.

    Wrapper prefixes are ignored: ``module.`` and mmagic's ``generator.``. Keys without a counterpart in our models,
    such as mmagic's ``step_counter``, are omitted.

    Args:
        keys: State-dict keys of BasicVSR, EDVR or SpyNet.
        ema: Use mmagic's averaged weights, ``generator_ema.``, if present.

    Example:
        >>> to_ours(["generator.backward_resblocks.main.2.4.conv1.bias", "generator.step_counter"])
        {'generator.backward_resblocks.main.2.4.conv1.bias': 'backward_trunk.blocks.4.conv1.bias'}
        >>> to_ours(["basic_module.5.basic_module.1.conv.weight"])
        {'basic_module.5.basic_module.1.conv.weight': 'levels.5.2.weight'}
    """
    unwrapped = _unwrapped(list(keys), ema=ema)
    found = _read(list(unwrapped.values()))
    if found is None:
        return None
    return {key: found[1][inner] for key, inner in unwrapped.items() if inner in found[1]}


def foreign_keys(keys: Iterable[str], dialect: Literal["basicsr", "mmagic"]) -> dict[str, str]:
    """Map vcycle's keys to another library's; keys without a counterpart are omitted.

    Example:
        >>> foreign_keys(["align.levels.0.deform.offsets.bias"], "basicsr")
        {'align.levels.0.deform.offsets.bias': 'pcd_align.dcn_pack.l1.conv_offset.bias'}
    """
    return _translated(list(keys), "vcycle", dialect)


def _read(keys: list[str]) -> tuple[Dialect, dict[str, str]] | None:
    """The library that the keys belong to, and vcycle's name of each."""
    readings = [(dialect, _translated(keys, dialect, "vcycle")) for dialect in _DIALECTS]
    best = max(readings, key=lambda reading: len(reading[1]))
    return best if best[1] else None


def _translated(keys: list[str], source: Dialect, target: Dialect) -> dict[str, str]:
    alone = any(key.startswith(("levels.", "basic_module.")) for key in keys)
    before, after = (_FLOW[source], _FLOW[target]) if alone else ("", "")
    names = {key: _name(before + key, source, target) for key in keys}
    return {key: name.removeprefix(after) for key, name in names.items() if name is not None}


def _name(key: str, source: Dialect, target: Dialect) -> str | None:
    layer, _, leaf = key.rpartition(".")
    if leaf not in ("weight", "bias", "mean", "std"):
        return None
    for pattern, template in _templates(source, target):
        found = pattern.fullmatch(layer)
        if found is not None:
            return f"{template.format(**found.groupdict())}.{leaf}"
    return None


@cache
def _templates(source: Dialect, target: Dialect) -> tuple[tuple[re.Pattern[str], str], ...]:
    first, second = _DIALECTS.index(source), _DIALECTS.index(target)
    return tuple((re.compile(re.escape(row[first]).replace(r"\{n\}", r"(?P<n>\d+)")), row[second]) for row in _ROWS)


def _unwrapped(keys: list[str], *, ema: bool) -> dict[str, str]:
    """Each key without wrapper prefixes, for one of mmagic's two networks."""
    for prefix in ("module.", "generator_ema." if ema else "generator.", "generator.", "generator_ema."):
        inside = {key: key.removeprefix(prefix) for key in keys if key.startswith(prefix)}
        if inside:
            return {key: name.removeprefix("module.") for key, name in inside.items()}
    return {key: key for key in keys}


_Row = tuple[str, str, str]
"""A layer's name in vcycle, BasicSR and mmagic."""


def _flow() -> list[_Row]:
    theirs = "spynet.basic_module.{n}.basic_module."
    return [
        ("flow", "spynet", "spynet"),
        *((f"flow.levels.{{n}}.{2 * k}", f"{theirs}{2 * k}", f"{theirs}{k}.conv") for k in range(5)),
    ]


def _trunks() -> list[_Row]:
    rows = []
    for way in ("backward", "forward"):
        ours, basicsr, mmagic = f"{way}_trunk", f"{way}_trunk.main", f"{way}_resblocks.main"
        rows.append((f"{ours}.first", f"{basicsr}.0", f"{mmagic}.0"))
        rows += [
            (f"{ours}.blocks.{{n}}.{conv}", f"{basicsr}.2.{{n}}.{conv}", f"{mmagic}.2.{{n}}.{conv}")
            for conv in ("conv1", "conv2")
        ]
    return rows


def _alignment() -> list[_Row]:
    rows = [
        ("align.guide1", "pcd_align.cas_offset_conv1", "pcd_alignment.cas_offset_conv1.conv"),
        ("align.guide2", "pcd_align.cas_offset_conv2", "pcd_alignment.cas_offset_conv2.conv"),
        ("align.deform", "pcd_align.cas_dcnpack", "pcd_alignment.cas_dcnpack"),
        ("align.deform.offsets", "pcd_align.cas_dcnpack.conv_offset", "pcd_alignment.cas_dcnpack.conv_offset"),
    ]
    parts = (
        *((f"guide{k}", f"offset_conv{k}", "", ".conv") for k in (1, 2, 3)),
        ("merge", "feat_conv", "", ".conv"),
        ("deform", "dcn_pack", "", ""),
        ("deform.offsets", "dcn_pack", ".conv_offset", ""),
    )
    for level in (1, 2, 3):
        rows += [
            (
                f"align.levels.{level - 1}.{ours}",
                f"pcd_align.{theirs}.l{level}{end}",
                f"pcd_alignment.{theirs}.l{level}{end}{conv}",
            )
            for ours, theirs, end, conv in parts
        ]
    return rows


_ATTENTION = (
    ("embed_center", "temporal_attn1", ""),
    ("embed", "temporal_attn2", ""),
    ("fuse", "feat_fusion", ".conv"),
    ("space1", "spatial_attn1", ".conv"),
    ("space2", "spatial_attn2", ".conv"),
    ("space3", "spatial_attn3", ".conv"),
    ("space4", "spatial_attn4", ".conv"),
    ("space5", "spatial_attn5", ""),
    ("coarse1", "spatial_attn_l1", ".conv"),
    ("coarse2", "spatial_attn_l2", ".conv"),
    ("coarse3", "spatial_attn_l3", ".conv"),
    ("add1", "spatial_attn_add1", ".conv"),
    ("add2", "spatial_attn_add2", ""),
)
"""Layers of EDVR's fusion in vcycle and the others, and the suffix that mmagic adds."""
_ROWS: tuple[_Row, ...] = (
    *_flow(),
    *_trunks(),
    ("fusion", "fusion", "fusion"),
    *((f"fusion.{ours}", f"fusion.{theirs}", f"fusion.{theirs}{conv}") for ours, theirs, conv in _ATTENTION),
    ("first", "conv_first", "conv_first"),
    ("half1", "conv_l2_1", "feat_l2_conv1.conv"),
    ("half2", "conv_l2_2", "feat_l2_conv2.conv"),
    ("quarter1", "conv_l3_1", "feat_l3_conv1.conv"),
    ("quarter2", "conv_l3_2", "feat_l3_conv2.conv"),
    *_alignment(),
    *(
        (f"{ours}.{{n}}.{conv}", f"{theirs}.{{n}}.{conv}", f"{theirs}.{{n}}.{conv}")
        for ours, theirs in (("front", "feature_extraction"), ("back", "reconstruction"))
        for conv in ("conv1", "conv2")
    ),
    ("head.up1", "upconv1", "upsample1.upsample_conv"),
    ("head.up2", "upconv2", "upsample2.upsample_conv"),
    ("head.hr", "conv_hr", "conv_hr"),
    ("head.last", "conv_last", "conv_last"),
)


def _foreign(keys: Iterable[str], library: Any, options: Any) -> dict[str, str]:
    return foreign_keys(keys, library) if library in KEY_MAP.libraries else {}


KEY_MAP = KeyMap(
    libraries={"basicsr": "BasicSR", "mmagic": "mmagic"},
    dialect_of=dialect_of,
    to_ours=partial(to_ours, ema=True),
    foreign_keys=_foreign,
)
"""Keys of BasicVSR, EDVR and SpyNet; from mmagic, the averaged weights."""
