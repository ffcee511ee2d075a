"""What becomes of MMAction2's keys that need more than a row of the table."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vcycle.errors import RecipeError
from vcycle.tasks.importing import (
    Compute,
    Finding,
    Rule,
    Source,
    differs,
    existing,
    in_clips,
    named_model,
    product,
    translated,
    unneeded,
)
from vcycle.tasks.recognition.importing.mmaction2_pipeline import TEST, TRAIN, augmentation, has_step, step
from vcycle.tasks.recognition.importing.networks import BLOCKS, WIDTHS, slowfast
from vcycle.tasks.recognition.models import MODELS

__all__ = [
    "BACKBONE",
    "batch_rule",
    "compose",
    "epochs",
    "fast_depth",
    "flip",
    "floor",
    "milestones",
    "nonlocal_blocks",
    "nonlocal_mode",
    "normalisation",
    "num_clips",
    "optimizer_wrapper",
    "option",
    "path_of",
    "policy",
    "precise",
    "pretrained",
    "scale",
    "warmup_length",
    "warmup_start",
]

_GPUS = 8
"""GPUs of most published trainings, where neither the configuration nor its name tells."""
_CLIPS = {"kinetics400": 240_000, "sthv2": 168_913}
"""Length of the training set, by what the path of its list says."""
_PER_GPU = ("data.videos_per_gpu", "data.train_dataloader.videos_per_gpu", "train_dataloader.batch_size")
_STEPS = ("train_cfg.max_iters", "runner.max_iters")
_EPOCHS = ("train_cfg.max_epochs", "total_epochs", "runner.max_epochs")
BACKBONE = "model.backbone"


def _first(source: Source, *keys: str, default: Any = None) -> Any:
    """The value of the first key that there is; 0.x and 1.x name them differently."""
    return next((source[key] for key in keys if key in source), default)


def _per_gpu(source: Source) -> int:
    return int(_first(source, *_PER_GPU))


def _repeats(source: Source) -> int:
    """Clips of each video in a batch, which MMAction2 counts once."""
    return int(_first(source, *(f"{split}.num_repeats" for split in TRAIN), default=1))


def epochs(key: str) -> Compute:
    """A length in epochs, which are passes over the videos, as `key` of the recipe, whose epochs are in clips."""
    return lambda value, source: translated(**{key: _in_epochs(value, source)})


def _in_epochs(value: Any, source: Source) -> Any:
    return in_clips(value, _repeats(source))


def _gpus(source: Source) -> int | None:
    """The number of GPUs that the configuration, or its name, was written for."""
    total = source.get("auto_scale_lr.base_batch_size")
    if total:
        return max(1, int(total) // _per_gpu(source))
    found = re.search(r"(?:^|[_-])(\d+)xb\d+(?:[_-]|$)", Path(source.name).stem)
    return int(found[1]) if found else None


def _batch(source: Source) -> int:
    return _own_batch(source) * (_gpus(source) or _GPUS)


def _own_batch(source: Source) -> int:
    """Clips per step on one GPU."""
    return _per_gpu(source) * _repeats(source)


def batch_rule(value: Any, source: Source) -> Finding:
    """The batch of one GPU."""
    if _gpus(source) is None:
        return differs(f"{_GPUS} GPUs are assumed: training.batch is {_batch(source)}")
    return translated("training.batch", "training.lr_batch")


def _clips(source: Source) -> int | None:
    listed = str(_first(source, *(f"{split}.ann_file" for split in TRAIN), default=""))
    return next((clips for name, clips in _CLIPS.items() if name in listed), None)


def path_of(key: str, kind: str) -> Rule:
    """A path, as `key` of the recipe if it exists."""
    return lambda value, source: existing(value, kind, key)


# The schedule.


def _by_steps(source: Source) -> bool:
    """Whether the length of the training is in steps, not epochs."""
    return _first(source, *_STEPS) is not None


def _plan(source: Source) -> str:
    names = [name for name in ("long", "short") if source.get(f"multigrid.{name}_cycle")]
    return "+".join(names) or "constant"


def option(key: str, cycle: str = "") -> Rule:
    """An option of the plan, if the plan has it; `cycle` names the cycle that it is of."""

    def rule(value: Any, source: Source) -> Finding:
        plan = _plan(source)
        if plan == "constant" or cycle not in plan:
            return unneeded("the plan does not use it")
        return translated(**{f"plans.{plan}.{key}": value})

    return rule


def milestones(value: Any, source: Source) -> Finding:
    """Epochs or steps at which the LR drops."""
    end = float(_first(source, *_STEPS, *_EPOCHS))
    found = [float(drop if _by_steps(source) else _in_epochs(drop, source)) for drop in value if drop < end]
    return translated(training__decay__milestones=found)


def policy(value: Any, source: Source) -> Finding:
    """`lr_config.policy`."""
    laws = {"step": "steps", "CosineAnnealing": "cosine", "fixed": "constant"}
    if value not in laws:
        return differs("vcycle's LR follows steps, a cosine or a constant")
    return translated(training__decay__law=laws[value])


def warmup_length(value: Any, source: Source) -> Finding:
    """The length of the warmup, converted where it is in steps and the training in epochs."""
    by_epoch = _first(
        source,
        "lr_config.warmup_by_epoch",
        "param_scheduler[LinearLR].by_epoch",
        default="lr_config.policy" not in source,
    )
    clips = _clips(source)
    if bool(by_epoch) is not _by_steps(source):
        return translated(training__warmup__length=_in_epochs(value, source) if by_epoch else value)
    if by_epoch or clips is None:
        return differs("the length of an epoch is unknown: training.warmup.length sets it")
    return translated(training__warmup__length=product(value, _batch(source) / clips))


def warmup_start(value: Any, source: Source) -> Finding:
    """The LR of the warmup's start, as a share of the LR."""
    return translated(training__warmup__start_lr=product(value, _lr(source)))


def floor(value: Any, source: Source) -> Finding:
    """The lowest LR, as a share of the LR."""
    return translated(training__decay__floor=product(value, _lr(source)))


def _lr(source: Source) -> float:
    return float(_first(source, "optim_wrapper.optimizer.lr", "optimizer.lr"))


# The pipeline of the training.


def scale(value: Any, source: Source) -> Finding:
    """`scale` of Resize: of the frames, or of the clip at last."""
    if isinstance(value, list | tuple) and len(value) == 2 and value[0] == value[1]:
        return translated("training.size")
    return unneeded("sampling.field is a share of the frame, at any resolution")


def flip(value: Any, source: Source) -> Finding:
    """`Flip.flip_ratio`."""
    if value in (0, 0.5):
        return translated(sampling__flip=bool(value))
    return differs("vcycle flips half of the clips", sampling__flip=True)


def num_clips(value: Any, source: Source) -> Finding:
    """Clips, or segments, per video."""
    if value == 1:
        return unneeded("vcycle takes one clip per video and step")
    return differs("vcycle takes one clip per video and step; segments of single frames are a 2-D network's")


def normalisation(key: str) -> Rule:
    """Mean or deviation of each channel, in 0..255, as `key` of the recipe."""

    def rule(value: Any, source: Source) -> Finding:
        if len(value) != 3:
            raise RecipeError(f"{source.name}: {len(value)} channels are normalized; accepted: RGB")
        return translated(**{key: [float(f"{each / 255:.6g}") for each in value]})

    return rule


# The network.


def _frame_ratio(source: Source) -> int:
    """Frames of the clip per frame of SlowFast's fast pathway."""
    if source.get(f"{BACKBONE}.type") != "ResNet3dSlowFast":
        return 1
    return max(1, int(source.get(f"{BACKBONE}.resample_rate", 8)) // int(source.get(f"{BACKBONE}.speed_ratio", 8)))


def _nonlocal_every(places: Any, blocks: tuple[int, ...]) -> tuple[int, ...] | None:
    """Blocks per non-local block in each stage, if they are regular."""
    every = []
    for stage, count in zip(places, blocks, strict=True):
        marks = [bool(mark) for mark in stage]
        step = marks.index(True) + 1 if any(marks) else 0
        if len(marks) != count or marks != [bool(step) and (block + 1) % max(step, 1) == 0 for block in range(count)]:
            return None
        every.append(step)
    return tuple(every)


def _network(source: Source) -> dict[str, Any]:
    """The model and its options; empty for one that vcycle does not have."""
    kind, path = source.get(f"{BACKBONE}.type"), f"{BACKBONE}.slow_pathway"
    prefix = path if kind == "ResNet3dSlowFast" else BACKBONE
    depth = int(source.get(f"{prefix}.depth", 50))
    if kind not in ("ResNet3dSlowFast", "ResNet3dSlowOnly", "ResNet3d", "C2D") or depth not in BLOCKS:
        return {}
    width = int(source.get(f"{prefix}.base_channels", 64))
    options: dict[str, Any] = {
        "widths": tuple(width * factor for factor in WIDTHS),
        "blocks": BLOCKS[depth],
        "dropout": source.get("model.cls_head.dropout_ratio", 0.8 if kind == "ResNet3dSlowFast" else 0.5),
        "zero_gamma": bool(source.get(f"{prefix}.zero_init_residual", True)),
    }
    if kind == "ResNet3dSlowFast":
        options |= {
            "stem_width": width,
            "alpha": source.get(f"{BACKBONE}.speed_ratio", 8),
            "beta_inverse": source.get(f"{BACKBONE}.channel_ratio", 8),
            "fusion_kernel": source.get(f"{path}.fusion_kernel", 5),
        }
        return slowfast(options, _frames(source), _stride(source))
    places = source.get(f"{BACKBONE}.non_local")
    if isinstance(places, list | tuple) and (every := _nonlocal_every(places, BLOCKS[depth])):
        mode = source.get(f"{BACKBONE}.non_local_cfg.mode", "embedded_gaussian")
        options |= {"nonlocal_every": every, "nonlocal_form": "dot" if mode == "dot_product" else "softmax"}
    family = {"ResNet3dSlowOnly": "slow_", "ResNet3d": "i3d_", "C2D": "c2d_"}[kind]
    return named_model(MODELS, [name for name in MODELS.names() if name.startswith(family)], options)


def _frames(source: Source) -> int:
    return int(_clip(source, "clip_len")) // _frame_ratio(source)


def _stride(source: Source) -> float:
    return float(_clip(source, "frame_interval", 1)) * _frame_ratio(source)


def _clip(source: Source, key: str, default: Any = None) -> Any:
    """An argument of the transform that samples frames."""
    for name in ("SampleFrames", "UniformSample", "UniformSampleFrames", "DenseSampleFrames"):
        if has_step(source, TRAIN, name):
            return step(source, TRAIN, name, key, default)
    raise RecipeError(
        f"{source.name}: the training pipeline has no SampleFrames or UniformSample: accepted are configurations that "
        "train on videos"
    )


def nonlocal_blocks(value: Any, source: Source) -> Finding:
    """`model.backbone.non_local`."""
    if not isinstance(value, list | tuple) or not any(any(stage) for stage in value):
        return unneeded("no non-local block")
    every = _nonlocal_every(value, BLOCKS[int(source.get(f"{BACKBONE}.depth", 50))])
    return translated("model") if every else differs("vcycle has non-local blocks at equal distances")


def nonlocal_mode(value: Any, source: Source) -> Finding:
    """`model.backbone.non_local_cfg.mode`."""
    if value in ("dot_product", "embedded_gaussian"):
        return translated("model")
    return differs("vcycle has the forms dot (product) and softmax (embedded Gaussian)")


def pretrained(value: Any, source: Source) -> Finding:
    """A file or URL of initial weights."""
    if not value:
        return unneeded("a random initialisation")
    found = existing(value, "file", "init.path")
    why = found.reason if found.kind == "translated" else "download the weights and give them with init.path=FILE"
    return Finding(kind=found.kind, reason=why, sets={**found.sets, "init.needed": True, "init.head": "new"})


def fast_depth(value: Any, source: Source) -> Finding:
    """`model.backbone.fast_pathway.depth`."""
    same = value == source.get(f"{BACKBONE}.slow_pathway.depth", 50)
    return translated("model") if same else differs("both pathways have the depth of the slow one")


def optimizer_wrapper(value: Any, source: Source) -> Finding:
    """`optim_wrapper.type`."""
    return translated(run__precision="fp16") if value == "AmpOptimWrapper" else unneeded("fp32")


def precise(value: Any, source: Source) -> Finding:
    """`precise_bn.num_iters`."""
    return translated(training__precise_bn=int(value) * _batch(source))


def compose(source: Source) -> Mapping[str, Any]:
    """The keys of the recipe that depend on several keys."""
    if source.get("model.type") not in ("Recognizer3D", "Recognizer2D"):
        raise RecipeError(f"{source.name}: model.type is {source.get('model.type')!r}; accepted: 'Recognizer3D'")
    if _first(source, *_PER_GPU) is None:
        raise RecipeError(
            f"{source.name}: the batch size is missing: data.videos_per_gpu or train_dataloader.batch_size"
        )
    if _first(source, *_STEPS, *_EPOCHS) is None:
        raise RecipeError(f"{source.name}: the length is missing: total_epochs or train_cfg.max_epochs")
    multigrid = _plan(source) != "constant"
    synchronised = "SyncBN" in str(source.get(f"{BACKBONE}.norm_cfg.type"))
    size = _size(source)
    found: dict[str, Any] = {
        "plan": _plan(source),
        "training.batch": _batch(source),
        "training.lr_batch": _batch(source),
        "training.bn_batch": 8 if multigrid else _batch(source) if synchronised else _own_batch(source),
        "training.frames": _frames(source),
        "training.size": size,
        "sampling.short": "loop" if _clip(source, "out_of_bound_opt", "loop") == "loop" else "hold",
        **_network(source),
    }
    if _clips(source):
        found["data.clips"] = _clips(source)
    if has_step(source, TRAIN, "UniformSample") or has_step(source, TRAIN, "UniformSampleFrames"):
        found |= {"sampling.span": [1.0, 1.0], "sampling.segments": True}
    else:
        found["sampling.stride"] = _stride(source)
    return found | _crops(source, size) | augmentation(source) | _views(source)


def _size(source: Source) -> int:
    """The side of the crop that the network sees."""
    scale = step(source, TRAIN, "Resize", "scale")
    if isinstance(scale, list | tuple) and scale[0] == scale[1]:
        return int(scale[0])
    for name, key in (("RandomCrop", "size"), ("CenterCrop", "crop_size"), ("MultiScaleCrop", "input_size")):
        if (size := step(source, TRAIN, name, key)) is not None:
            return int(size[0] if isinstance(size, list | tuple) else size)
    raise RecipeError(f"{source.name}: the training pipeline does not crop squares: Resize or RandomCrop is needed")


def _crops(source: Source, size: int) -> dict[str, Any]:
    """The range of crops in a frame."""
    if has_step(source, TRAIN, "RandomRescale"):
        low, high = step(source, TRAIN, "RandomRescale", "scale_range")
        return {"sampling.short_side": [low, high]}
    if has_step(source, TRAIN, "MultiScaleCrop"):
        scales = step(source, TRAIN, "MultiScaleCrop", "scales", (1,))
        return {"sampling.field": [min(scales), 1.0]}
    if has_step(source, TRAIN, "RandomResizedCrop"):
        area = step(source, TRAIN, "RandomResizedCrop", "area_range", (0.08, 1.0))
        return {"sampling.field": [float(f"{math.sqrt(area[0]):.3g}"), 1.0]}
    return {"sampling.short_side": [size, size]}


def _views(source: Source) -> dict[str, Any]:
    """The evaluation of the test pipeline."""
    found: dict[str, Any] = {"evaluation.clips": step(source, TEST, "SampleFrames", "num_clips", 1)}
    for name, crops in (("ThreeCrop", 3), ("CenterCrop", 1)):
        if (size := step(source, TEST, name, "crop_size")) is not None:
            found |= {"evaluation.crops": crops, "evaluation.size": size[0] if isinstance(size, list | tuple) else size}
    scale = step(source, TEST, "Resize", "scale")
    if isinstance(scale, list | tuple) and scale[0] == -1:
        found["evaluation.short_side"] = scale[1]
    return found
