"""Translates MMAction2's configurations, of versions 0.x (with multigrid) and 1.x."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vcycle.errors import RecipeError
from vcycle.tasks.importing import (
    Finding,
    Importer,
    Rule,
    Source,
    differs,
    existing,
    into,
    named_model,
    only,
    product,
    to,
    translated,
    unneeded,
)
from vcycle.tasks.recognition.importing.networks import BLOCKS, WIDTHS, slowfast
from vcycle.tasks.recognition.models import MODELS

__all__ = ["MMACTION2"]

_GPUS = 8
"""GPUs of most published trainings, where neither the configuration nor its name tells."""
_CLIPS = {"kinetics400": 240_000, "sthv2": 168_913}
"""Length of the training set, by what the path of its list says."""
_TRAIN = ("data.train", "train_dataloader.dataset")
_TEST = ("data.test", "test_dataloader.dataset")
_BACKBONE = "model.backbone"


def _first(source: Source, *keys: str, default: Any = None) -> Any:
    """The value of the first key that there is; 0.x and 1.x name them differently."""
    return next((source[key] for key in keys if key in source), default)


def _step(source: Source, splits: tuple[str, ...], name: str, key: str, default: Any = None) -> Any:
    """An argument of the last transform of that name in the pipeline of a split."""
    found = default
    for split in splits:
        start, end = f"{split}.pipeline[{name}", f".{key}"
        for each, value in source.items():
            if each.startswith(start) and re.fullmatch(rf"(#\d+)?\]{re.escape(end)}", each[len(start) :]):
                found = value
    return found


def _has_step(source: Source, splits: tuple[str, ...], name: str) -> bool:
    return _step(source, splits, name, "type") is not None


def _per_gpu(source: Source) -> int:
    return int(
        _first(source, "data.videos_per_gpu", "data.train_dataloader.videos_per_gpu", "train_dataloader.batch_size")
    )


def _gpus(source: Source) -> int | None:
    """The number of GPUs that the configuration, or its name, was written for."""
    total = source.get("auto_scale_lr.base_batch_size")
    if total:
        return max(1, int(total) // _per_gpu(source))
    found = re.search(r"(?:^|[_-])(\d+)xb\d+(?:[_-]|$)", Path(source.name).stem)
    return int(found[1]) if found else None


def _batch(source: Source) -> int:
    return _per_gpu(source) * (_gpus(source) or _GPUS)


def _batch_rule(value: Any, source: Source) -> Finding:
    if _gpus(source) is None:
        return differs(f"{_GPUS} GPUs are assumed: training.batch is {_batch(source)}")(value, source)
    return translated("training.batch", "training.lr_batch")


def _clips(source: Source) -> int | None:
    listed = str(_first(source, *(f"{split}.ann_file" for split in _TRAIN), default=""))
    return next((clips for name, clips in _CLIPS.items() if name in listed), None)


def _list(key: str, kind: str) -> Rule:
    return lambda value, source: existing(value, kind, key)


# The schedule.


def _by_steps(source: Source) -> bool:
    """Whether the length of the training is in steps, not epochs."""
    return _first(source, "train_cfg.max_iters", "runner.max_iters") is not None


def _length(value: Any, source: Source) -> float:
    """The length of the training in its own unit."""
    return float(
        _first(
            source,
            "train_cfg.max_iters",
            "runner.max_iters",
            "train_cfg.max_epochs",
            "total_epochs",
            "runner.max_epochs",
        )
    )


def _plan(source: Source) -> str:
    names = [name for name in ("long", "short") if source.get(f"multigrid.{name}_cycle")]
    return "+".join(names) or "constant"


def _option(key: str, cycle: str = "") -> Rule:
    def rule(value: Any, source: Source) -> Finding:
        plan = _plan(source)
        if plan == "constant" or cycle not in plan:
            return unneeded("the plan does not use it")(value, source)
        return Finding(kind="translated", reason=f"plans.{plan}.{key}", sets={f"plans.{plan}.{key}": value})

    return rule


def _milestones(value: Any, source: Source) -> Finding:
    end = _length(value, source)
    return translated(training__decay__milestones=[float(step) for step in value if step < end])


def _cosine_begin(value: Any, source: Source) -> Finding:
    return only(0, why="vcycle's cosine starts at step 0; warmup replaces its beginning")(value, source)


def _policy(value: Any, source: Source) -> Finding:
    laws = {"step": "steps", "CosineAnnealing": "cosine", "fixed": "constant"}
    if value not in laws:
        return differs("vcycle's LR follows steps, a cosine or a constant")(value, source)
    return translated(training__decay__law=laws[value])


def _warmup_length(value: Any, source: Source) -> Finding:
    """The length of the warmup, converted where it is in steps and the training in epochs."""
    by_epoch = _first(
        source,
        "lr_config.warmup_by_epoch",
        "param_scheduler[LinearLR].by_epoch",
        default="lr_config.policy" not in source,
    )
    clips = _clips(source)
    if bool(by_epoch) is not _by_steps(source):
        return translated(training__warmup__length=value)
    if by_epoch or clips is None:
        return differs("the length of an epoch is unknown: training.warmup.length sets it")(value, source)
    return translated(training__warmup__length=product(value, _batch(source) / clips))


def _warmup_start(value: Any, source: Source) -> Finding:
    return translated(training__warmup__start_lr=product(value, _lr(source)))


def _lr(source: Source) -> float:
    return float(_first(source, "optim_wrapper.optimizer.lr", "optimizer.lr"))


def _momentum(key: str) -> Rule:
    return lambda value, source: Finding(kind="translated", reason=key, sets={key: value})


# The pipeline of the training.


def _scale(value: Any, source: Source) -> Finding:
    """`scale` of Resize: of the frames, or of the clip at last."""
    if isinstance(value, list | tuple) and len(value) == 2 and value[0] == value[1]:
        return translated("training.size")
    return unneeded("sampling.field is a share of the frame, at any resolution")(value, source)


def _flip(value: Any, source: Source) -> Finding:
    if value in (0, 0.5):
        return translated(sampling__flip=bool(value))
    return Finding(kind="differs", reason="vcycle flips half of the clips", sets={"sampling.flip": True})


def _num_clips(value: Any, source: Source) -> Finding:
    if value == 1:
        return unneeded("vcycle takes one clip per video and step")(value, source)
    return differs("vcycle takes one clip per video and step; segments of single frames are a 2-D network's")(
        value, source
    )


def _normalisation(key: str) -> Rule:
    def rule(value: Any, source: Source) -> Finding:
        if len(value) != 3:
            raise RecipeError(f"{source.name}: {len(value)} channels are normalized; accepted: RGB")
        return Finding(kind="translated", reason=key, sets={key: [float(f"{each / 255:.6g}") for each in value]})

    return rule


# The network.


def _frame_ratio(source: Source) -> int:
    """Frames of the clip per frame of SlowFast's fast pathway."""
    if source.get(f"{_BACKBONE}.type") != "ResNet3dSlowFast":
        return 1
    return max(1, int(source.get(f"{_BACKBONE}.resample_rate", 8)) // int(source.get(f"{_BACKBONE}.speed_ratio", 8)))


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
    kind, path = source.get(f"{_BACKBONE}.type"), f"{_BACKBONE}.slow_pathway"
    prefix = path if kind == "ResNet3dSlowFast" else _BACKBONE
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
            "alpha": source.get(f"{_BACKBONE}.speed_ratio", 8),
            "beta_inverse": source.get(f"{_BACKBONE}.channel_ratio", 8),
            "fusion_kernel": source.get(f"{path}.fusion_kernel", 5),
        }
        return slowfast(options, _frames(source), _stride(source))
    places = source.get(f"{_BACKBONE}.non_local")
    if isinstance(places, list | tuple) and (every := _nonlocal_every(places, BLOCKS[depth])):
        mode = source.get(f"{_BACKBONE}.non_local_cfg.mode", "embedded_gaussian")
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
        if _has_step(source, _TRAIN, name):
            return _step(source, _TRAIN, name, key, default)
    raise RecipeError(
        f"{source.name}: the training pipeline has no SampleFrames or UniformSample: accepted are configurations that "
        "train on videos"
    )


def _nonlocal(value: Any, source: Source) -> Finding:
    if not isinstance(value, list | tuple) or not any(any(stage) for stage in value):
        return unneeded("no non-local block")(value, source)
    every = _nonlocal_every(value, BLOCKS[int(source.get(f"{_BACKBONE}.depth", 50))])
    return translated("model") if every else differs("vcycle has non-local blocks at equal distances")(value, source)


def _nonlocal_mode(value: Any, source: Source) -> Finding:
    if value in ("dot_product", "embedded_gaussian"):
        return translated("model")
    return differs("vcycle has the forms dot (product) and softmax (embedded Gaussian)")(value, source)


def _pretrained(value: Any, source: Source) -> Finding:
    if not value:
        return unneeded("a random initialisation")(value, source)
    found = existing(value, "file", "init.path")
    why = found.reason if found.kind == "translated" else "download the weights and give them with init.path=FILE"
    return Finding(kind=found.kind, reason=why, sets={**found.sets, "init.needed": True, "init.head": "new"})


def _fast_depth(value: Any, source: Source) -> Finding:
    same = value == source.get(f"{_BACKBONE}.slow_pathway.depth", 50)
    return translated("model") if same else differs("both pathways have the depth of the slow one")(value, source)


def _optimizer_wrapper(value: Any, source: Source) -> Finding:
    return translated(run__precision="fp16") if value == "AmpOptimWrapper" else unneeded("fp32")(value, source)


def _precise(value: Any, source: Source) -> Finding:
    return translated(training__precise_bn=int(value) * _batch(source))


def _compose(source: Source) -> Mapping[str, Any]:
    if source.get("model.type") not in ("Recognizer3D", "Recognizer2D"):
        raise RecipeError(f"{source.name}: model.type is {source.get('model.type')!r}; accepted: 'Recognizer3D'")
    if (
        _first(source, "data.videos_per_gpu", "data.train_dataloader.videos_per_gpu", "train_dataloader.batch_size")
        is None
    ):
        raise RecipeError(
            f"{source.name}: the batch size is missing: data.videos_per_gpu or train_dataloader.batch_size"
        )
    if (
        _first(
            source,
            "train_cfg.max_iters",
            "runner.max_iters",
            "train_cfg.max_epochs",
            "total_epochs",
            "runner.max_epochs",
        )
        is None
    ):
        raise RecipeError(f"{source.name}: the length is missing: total_epochs or train_cfg.max_epochs")
    multigrid = _plan(source) != "constant"
    synchronised = "SyncBN" in str(source.get(f"{_BACKBONE}.norm_cfg.type"))
    size = _size(source)
    found: dict[str, Any] = {
        "plan": _plan(source),
        "training.batch": _batch(source),
        "training.lr_batch": _batch(source),
        "training.bn_batch": 8 if multigrid else _batch(source) if synchronised else _per_gpu(source),
        "training.frames": _frames(source),
        "training.size": size,
        "sampling.short": "loop" if _clip(source, "out_of_bound_opt", "loop") == "loop" else "hold",
        **_network(source),
    }
    if _clips(source):
        found["data.clips"] = _clips(source)
    if _has_step(source, _TRAIN, "UniformSample") or _has_step(source, _TRAIN, "UniformSampleFrames"):
        found |= {"sampling.span": [1.0, 1.0], "sampling.segments": True}
    else:
        found["sampling.stride"] = _stride(source)
    return found | _crops(source, size) | _views(source)


def _size(source: Source) -> int:
    """The side of the crop that the network sees."""
    scale = _step(source, _TRAIN, "Resize", "scale")
    if isinstance(scale, list | tuple) and scale[0] == scale[1]:
        return int(scale[0])
    for name, key in (("RandomCrop", "size"), ("CenterCrop", "crop_size"), ("MultiScaleCrop", "input_size")):
        if (size := _step(source, _TRAIN, name, key)) is not None:
            return int(size[0] if isinstance(size, list | tuple) else size)
    raise RecipeError(f"{source.name}: the training pipeline does not crop squares: Resize or RandomCrop is needed")


def _crops(source: Source, size: int) -> dict[str, Any]:
    """The range of crops in a frame."""
    if _has_step(source, _TRAIN, "RandomRescale"):
        low, high = _step(source, _TRAIN, "RandomRescale", "scale_range")
        return {"sampling.short_side": [low, high]}
    if _has_step(source, _TRAIN, "MultiScaleCrop"):
        scales = _step(source, _TRAIN, "MultiScaleCrop", "scales", (1,))
        return {"sampling.field": [min(scales), 1.0]}
    if _has_step(source, _TRAIN, "RandomResizedCrop"):
        area = _step(source, _TRAIN, "RandomResizedCrop", "area_range", (0.08, 1.0))
        return {"sampling.field": [float(f"{math.sqrt(area[0]):.3g}"), 1.0]}
    return {"sampling.short_side": [size, size]}


def _views(source: Source) -> dict[str, Any]:
    """The evaluation of the test pipeline."""
    found: dict[str, Any] = {"evaluation.clips": _step(source, _TEST, "SampleFrames", "num_clips", 1)}
    for name, crops in (("ThreeCrop", 3), ("CenterCrop", 1)):
        if (size := _step(source, _TEST, name, "crop_size")) is not None:
            found |= {"evaluation.crops": crops, "evaluation.size": size[0] if isinstance(size, list | tuple) else size}
    scale = _step(source, _TEST, "Resize", "scale")
    if isinstance(scale, list | tuple) and scale[0] == -1:
        found["evaluation.short_side"] = scale[1]
    return found


_LOADS = unneeded("vcycle loads and decodes on its own")
_EVALUATION = unneeded("a validation takes one center clip at full resolution")
_MODEL = into("model")


def _in_pipelines(splits: tuple[str, ...], rules: Mapping[str, Rule]) -> dict[str, Rule]:
    """Rules for arguments of transforms, such as `Flip.flip_ratio`; of a name that occurs twice, for all."""
    found = {}
    for split in splits:
        for name, rule in rules.items():
            transform, _, argument = name.partition(".")
            for suffix in ("", "#*"):
                found[f"{split}.pipeline[{transform}{suffix}].{argument}"] = rule
    return found


_CROP = differs("vcycle crops squares of a range of sizes (sampling.field); the aspect ratio stays")
_AUGMENTATION = differs("vcycle has RandAugment, mixup and CutMix: augment")

MMACTION2 = Importer(
    tool="MMAction2",
    suffixes=(".py",),
    has="model and train_dataloader or data",
    owns=lambda data: "model" in data and ("train_dataloader" in data or "data" in data),
    model_key=f"{_BACKBONE}.type",
    compose=_compose,
    rules={
        # The schedule.
        "total_epochs": to("training.epochs"),
        "runner.max_epochs": to("training.epochs"),
        "runner.max_iters": to("training.steps"),
        "runner.type": unneeded("the length tells"),
        "train_cfg.max_epochs": to("training.epochs"),
        "train_cfg.max_iters": to("training.steps"),
        "train_cfg.type": unneeded("the length tells"),
        "train_cfg.val_interval": to("run.validate_every"),
        "train_cfg.val_begin": unneeded("vcycle validates from the start"),
        "lr_config.policy": _policy,
        "lr_config.step": _milestones,
        "lr_config.gamma": to("training.decay.gamma"),
        "lr_config.min_lr": to("training.decay.floor"),
        "lr_config.min_lr_ratio": lambda value, source: translated(training__decay__floor=product(value, _lr(source))),
        "lr_config.by_epoch": unneeded("vcycle's LR changes at every step"),
        "lr_config.warmup": only("linear", why="vcycle's warmup is linear"),
        "lr_config.warmup_by_epoch": into("training.warmup.length"),
        "lr_config.warmup_iters": _warmup_length,
        "lr_config.warmup_ratio": _warmup_start,
        "param_scheduler[LinearLR].end": _warmup_length,
        "param_scheduler[LinearLR].start_factor": _warmup_start,
        "param_scheduler[LinearLR].by_epoch": into("training.warmup.length"),
        "param_scheduler[LinearLR].begin": only(0, why="vcycle warms up from step 0"),
        "param_scheduler[LinearLR].*": unneeded("vcycle's LR changes at every step"),
        "param_scheduler[MultiStepLR].type": lambda value, source: translated(training__decay__law="steps"),
        "param_scheduler[MultiStepLR].milestones": _milestones,
        "param_scheduler[MultiStepLR].gamma": to("training.decay.gamma"),
        "param_scheduler[MultiStepLR].begin": only(0, why="vcycle counts milestones from step 0"),
        "param_scheduler[MultiStepLR].*": unneeded("the length tells"),
        "param_scheduler[CosineAnnealingLR].type": lambda value, source: translated(training__decay__law="cosine"),
        "param_scheduler[CosineAnnealingLR].eta_min": to("training.decay.floor"),
        "param_scheduler[CosineAnnealingLR].eta_min_ratio": lambda value, source: translated(
            training__decay__floor=product(value, _lr(source))
        ),
        "param_scheduler[CosineAnnealingLR].begin": _cosine_begin,
        "param_scheduler[CosineAnnealingLR].*": unneeded("the cosine is as long as the training"),
        "multigrid.long_cycle": into("plan"),
        "multigrid.short_cycle": into("plan"),
        "multigrid.epoch_factor": _option("epoch_factor"),
        "multigrid.long_cycle_factors": _option("long_shapes", "long"),
        "multigrid.short_cycle_factors": _option("short_sizes", "short"),
        "multigrid.default_s": unneeded("training.size is the full size"),
        "precise_bn.num_iters": _precise,
        "precise_bn.interval": unneeded("vcycle recomputes the statistics before each validation"),
        # The optimizer.
        "optimizer.type": to("optimizer.name", convert=str.lower),
        "optimizer.lr": to("training.lr"),
        "optimizer.momentum": to("optimizer.momentum"),
        "optimizer.nesterov": to("optimizer.nesterov"),
        "optimizer.betas": to("optimizer.betas"),
        "optimizer.weight_decay": to("optimizer.weight_decay"),
        "optim_wrapper.type": _optimizer_wrapper,
        "optim_wrapper.loss_scale": unneeded("vcycle scales the loss of fp16"),
        "optim_wrapper.optimizer.type": to("optimizer.name", convert=str.lower),
        "optim_wrapper.optimizer.lr": to("training.lr"),
        "optim_wrapper.optimizer.momentum": to("optimizer.momentum"),
        "optim_wrapper.optimizer.nesterov": to("optimizer.nesterov"),
        "optim_wrapper.optimizer.betas": to("optimizer.betas"),
        "optim_wrapper.optimizer.weight_decay": to("optimizer.weight_decay"),
        "*paramwise_cfg*": differs("norms and biases have no weight decay; vcycle has no other groups"),
        "optim_wrapper.clip_grad": only(None, why="vcycle clips by norm: training.clip_grad_norm"),
        "optim_wrapper.clip_grad.max_norm": to("training.clip_grad_norm"),
        "optim_wrapper.clip_grad.norm_type": only(2, why="vcycle clips by the 2-norm"),
        "optimizer_config.grad_clip": only(None, why="vcycle clips by norm: training.clip_grad_norm"),
        "optimizer_config.grad_clip.max_norm": to("training.clip_grad_norm"),
        "optimizer_config.grad_clip.norm_type": only(2, why="vcycle clips by the 2-norm"),
        # The data.
        "data.videos_per_gpu": _batch_rule,
        "data.train_dataloader.videos_per_gpu": _batch_rule,
        "train_dataloader.batch_size": _batch_rule,
        "auto_scale_lr.base_batch_size": into("training.batch", "training.lr_batch"),
        "auto_scale_lr.enable": unneeded("the LR follows training.batch, from training.lr_batch"),
        "data.workers_per_gpu": to("data.workers"),
        "train_dataloader.num_workers": to("data.workers"),
        "train_dataloader.sampler.*": unneeded("vcycle's stream of samples shuffles"),
        "train_dataloader.persistent_workers": _LOADS,
        "train_dataloader.pin_memory": _LOADS,
        "train_dataloader.collate_fn.*": _LOADS,
        **{f"{split}.type": only("VideoDataset", why="vcycle reads video files: data=FOLDER") for split in _TRAIN},
        **{f"{split}.ann_file": _list("data.path", "file") for split in _TRAIN},
        **{f"{split}.data_prefix": _list("data.root", "folder") for split in _TRAIN},
        **{f"{split}.data_prefix.*": _list("data.root", "folder") for split in _TRAIN},
        **{f"{split}.multi_class": to("training.multi_label", convert=bool) for split in _TRAIN},
        **{f"{split}.num_classes": unneeded("the data has the classes") for split in _TRAIN},
        **{f"{split}.test_mode": unneeded("`vcycle eval` tests a run") for split in _TRAIN},
        **{f"{split}.ann_file": _list("data.val", "file") for split in ("data.val", "val_dataloader.dataset")},
        **_in_pipelines(
            _TRAIN,
            {
                **dict.fromkeys(
                    ("SampleFrames.clip_len", "UniformSample.clip_len", "UniformSampleFrames.clip_len"),
                    into("training.frames"),
                ),
                "SampleFrames.frame_interval": into("sampling.stride"),
                "SampleFrames.num_clips": _num_clips,
                "SampleFrames.out_of_bound_opt": into("sampling.short"),
                "SampleFrames.type": into("sampling"),
                "UniformSample*.num_clips": _num_clips,
                "UniformSample*.type": into("sampling"),
                "DenseSampleFrames.*": differs("vcycle draws the start of a clip from the whole video"),
                "Resize.scale": _scale,
                "Resize.type": into("sampling", "training.size"),
                "Resize.keep_ratio": unneeded("vcycle crops squares"),
                "Resize.*": only("bilinear", why="vcycle resizes bilinearly"),
                "RandomRescale.*": into("sampling.short_side"),
                "RandomCrop.*": into("training.size"),
                "CenterCrop.*": differs("vcycle crops at random"),
                "RandomResizedCrop.*": _CROP,
                "MultiScaleCrop.input_size": into("training.size"),
                "MultiScaleCrop.scales": into("sampling.field"),
                "MultiScaleCrop.*": _CROP,
                "Flip.flip_ratio": _flip,
                "Flip.type": into("sampling.flip"),
                "Flip.direction": only("horizontal", why="vcycle flips horizontally"),
                "Normalize.mean": _normalisation("sampling.mean"),
                "Normalize.std": _normalisation("sampling.std"),
                "Normalize.to_bgr": only(False, why="vcycle reads RGB"),
                "Normalize.type": unneeded("vcycle always normalizes"),
                **dict.fromkeys(
                    (
                        *("DecordInit.*", "DecordDecode.*", "OpenCVInit.*", "OpenCVDecode.*", "PyAVInit.*"),
                        *("PyAVDecode.*", "RawFrameDecode.*", "FormatShape.*", "PackActionInputs.*", "Collect.*"),
                        *("ToTensor.*",),
                    ),
                    _LOADS,
                ),
                "ColorJitter.*": _AUGMENTATION,
                "RandomErasing.*": _AUGMENTATION,
                "PytorchVideoWrapper.*": _AUGMENTATION,
                "Imgaug.*": _AUGMENTATION,
                "*.*": differs("vcycle has no such transform"),
            },
        ),
        **_in_pipelines(
            _TEST,
            {
                "SampleFrames.num_clips": into("evaluation.clips"),
                "ThreeCrop.*": into("evaluation.crops", "evaluation.size"),
                "CenterCrop.*": into("evaluation.crops", "evaluation.size"),
                "TenCrop.*": differs("vcycle has crops along the longer side: evaluation.crops"),
                "Resize.scale": into("evaluation.short_side"),
                "*.*": unneeded("as in training"),
            },
        ),
        "data.test.*": unneeded("`vcycle eval` tests a run: data.test=FILE"),
        "test_dataloader.*": unneeded("`vcycle eval` tests a run: data.test=FILE"),
        "data.test_dataloader.*": unneeded("`vcycle eval` tests a run"),
        "data.val.*": _EVALUATION,
        "val_dataloader.*": _EVALUATION,
        "data.val_dataloader.*": _EVALUATION,
        "val_evaluator*": _EVALUATION,
        "test_evaluator*": unneeded("vcycle measures top-1 and top-5, or mAP"),
        # The network.
        "model.type": unneeded("the backbone names the model"),
        f"{_BACKBONE}.type": _MODEL,
        f"{_BACKBONE}.depth": _MODEL,
        f"{_BACKBONE}.resample_rate": into("model", "sampling.stride"),
        f"{_BACKBONE}.speed_ratio": _MODEL,
        f"{_BACKBONE}.channel_ratio": _MODEL,
        f"{_BACKBONE}.slow_pathway.depth": _MODEL,
        f"{_BACKBONE}.fast_pathway.depth": _fast_depth,
        f"{_BACKBONE}.slow_pathway.fusion_kernel": _MODEL,
        f"{_BACKBONE}.slow_pathway.lateral_norm": only(True, why="vcycle's SlowFast normalizes what it fuses"),
        f"{_BACKBONE}.slow_pathway.lateral": only(True, why="vcycle's SlowFast fuses its pathways"),
        f"{_BACKBONE}.fast_pathway.lateral": only(False, why="vcycle fuses into the slow pathway alone"),
        f"{_BACKBONE}.fast_pathway.base_channels": only(8, why="model.options.beta_inverse gives the width"),
        f"{_BACKBONE}.fast_pathway.conv1_kernel": only([5, 7, 7], why="vcycle's fast stem is 5×7×7"),
        f"{_BACKBONE}.slow_pathway.conv1_kernel": only([1, 7, 7], why="vcycle's slow stem is 1×7×7"),
        f"{_BACKBONE}.slow_pathway.inflate": only(
            [0, 0, 1, 1], why="model.options.slow_kernels says which stages see time"
        ),
        f"{_BACKBONE}.inflate": lambda value, source: (
            differs("model.options.temporal_kernels says which blocks see time")
            if value not in ((0, 0, 1, 1), ((1, 1, 1), (1, 0, 1, 0), (1, 0, 1, 0, 1, 0), (0, 1, 0)), None)
            else unneeded("vcycle does the same")
        )(value, source),
        f"{_BACKBONE}.conv1_kernel": lambda value, source: only(
            [5, 7, 7] if source.get(f"{_BACKBONE}.type") == "ResNet3d" else [1, 7, 7],
            why="the stem is the published one",
        )(value, source),
        f"{_BACKBONE}*conv1_stride_t": only(1, why="vcycle's stem keeps all frames: the network is another one"),
        f"{_BACKBONE}*pool1_stride_t": only(1, why="vcycle's stem keeps all frames: the network is another one"),
        f"{_BACKBONE}*dilations": only([1, 1, 1, 1], why="vcycle's networks have no dilation"),
        f"{_BACKBONE}*zero_init_residual": _MODEL,
        f"{_BACKBONE}*base_channels": _MODEL,
        f"{_BACKBONE}*norm_eval": only(False, why="training.freeze=batchnorm freezes BatchNorm"),
        f"{_BACKBONE}*conv_cfg.*": unneeded("vcycle's networks are 3-D"),
        f"{_BACKBONE}.norm_cfg.type": into("training.bn_batch"),
        f"{_BACKBONE}*norm_cfg.*": unneeded("vcycle trains BatchNorm"),
        f"{_BACKBONE}*with_cp": only(False, why="vcycle splits batches that do not fit into micro-batches"),
        f"{_BACKBONE}.non_local": _nonlocal,
        f"{_BACKBONE}.non_local_cfg.mode": _nonlocal_mode,
        f"{_BACKBONE}.non_local_cfg.sub_sample": only(True, why="vcycle pools before non-local blocks"),
        f"{_BACKBONE}.non_local_cfg.*": unneeded("the form tells"),
        f"{_BACKBONE}.pretrained": _pretrained,
        f"{_BACKBONE}.*.pretrained": only(None, why="give the weights of the whole network with init.path=FILE"),
        f"{_BACKBONE}.pretrained2d": unneeded("vcycle inflates the weights of image networks"),
        f"{_BACKBONE}.lateral": unneeded("one pathway"),
        f"{_BACKBONE}.*.type": unneeded("the backbone names the model"),
        "model.cls_head.type": unneeded("vcycle's head is the same: average pooling, dropout, linear"),
        "model.cls_head.in_channels": unneeded("the network tells"),
        "model.cls_head.num_classes": unneeded("the data has the classes"),
        "model.cls_head.spatial_type": only("avg", why="vcycle averages over all positions"),
        "model.cls_head.dropout_ratio": _MODEL,
        "model.cls_head.init_std": only(0.01, why="vcycle initializes the classifier with a deviation of 0.01"),
        "model.cls_head.multi_class": to("training.multi_label", convert=bool),
        "model.cls_head.average_clips": only("prob", why="vcycle averages probabilities"),
        "model.cls_head.loss_cls.type": lambda value, source: (
            translated(training__multi_label=True)
            if value == "BCELossWithLogits"
            else only("CrossEntropyLoss", why="vcycle has cross-entropy, per video or per class")(value, source)
        ),
        "model.cls_head.label_smooth_eps": to("training.label_smoothing"),
        "model.test_cfg.average_clips": only("prob", why="vcycle averages probabilities"),
        "model.test_cfg.*": unneeded("vcycle takes as many views at a time as fit"),
        "model.test_cfg": only(None, why="vcycle evaluates on its own"),
        "model.train_cfg": only(None, why="vcycle has no options of the kind"),
        "model.data_preprocessor.mean": _normalisation("sampling.mean"),
        "model.data_preprocessor.std": _normalisation("sampling.std"),
        "model.data_preprocessor.blending.*": _AUGMENTATION,
        "model.data_preprocessor.*": _LOADS,
        "train_cfg": only(None, why="vcycle has no options of the kind"),
        "test_cfg.*": unneeded("`vcycle eval` tests a run"),
        "test_cfg": only(None, why="vcycle evaluates on its own"),
        "val_cfg.*": _EVALUATION,
        "val_cfg": _EVALUATION,
        # The run.
        "load_from": _pretrained,
        "resume_from": only(None, why="vcycle resumes its own runs"),
        "resume": only(False, why="vcycle resumes its own runs"),
        "seed": to("run.seed"),
        "randomness.seed": lambda value, source: (
            unneeded("a random seed")(value, source) if value is None else translated(run__seed=value)
        ),
        "randomness.*": unneeded("vcycle's runs are deterministic on CPUs"),
        "evaluation.interval": to("run.validate_every"),
        "evaluation.*": unneeded("vcycle measures top-1 and top-5, or mAP"),
        "evaluation": unneeded("vcycle measures top-1 and top-5, or mAP"),
        "checkpoint_config.*": unneeded("vcycle saves by steps: run.save_every"),
        "default_hooks.*": unneeded("vcycle logs, saves and validates on its own"),
        "custom_hooks*": differs("vcycle runs no hooks of MMEngine"),
        "log_config.*": unneeded("vcycle logs every step; run.loggers adds others"),
        "log_config[*": unneeded("vcycle logs every step; run.loggers adds others"),
        "log_level": unneeded("vcycle logs every step"),
        "log_processor.*": unneeded("vcycle logs every step"),
        "vis_backends*": unneeded("run.loggers=[tensorboard] logs to TensorBoard"),
        "visualizer*": unneeded("run.loggers=[tensorboard] logs to TensorBoard"),
        "default_scope": unneeded("vcycle has no registry of MMEngine"),
        "env_cfg*": unneeded("vcycle sets up processes on its own"),
        "dist_params.*": unneeded("torchrun sets it"),
        "workflow": unneeded("vcycle trains"),
        "find_unused_parameters": unneeded("vcycle knows which parameters are frozen"),
        "work_dir": unneeded("`vcycle train --out` names the folder"),
        "gpu_ids": unneeded("torchrun sets it"),
        "omnisource": only(False, why="vcycle trains on one dataset"),
        "fp16*": lambda value, source: translated(run__precision="fp16"),
    },
)
"""Translates MMAction2's configurations."""
