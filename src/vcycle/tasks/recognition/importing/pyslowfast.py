"""Translates PySlowFast's YAML files."""

import math
from collections.abc import Mapping
from itertools import pairwise
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
from vcycle.tasks.recognition.importing.networks import BLOCKS, WIDTHS, per_block, slowfast
from vcycle.tasks.recognition.models import MODELS

__all__ = ["PYSLOWFAST"]

_CLIPS = {"kinetics": 240_000, "ssv2": 168_913, "charades": 7_985}
"""Length of the training set by `TRAIN.DATASET`; Kinetics-400's is that of Wu et al. 2020."""
_FPS = {"charades": 24.0}
_LAYOUTS = {"ssv2": "ssv2", "charades": "charades"}


def _long(source: Source) -> bool:
    return bool(source["MULTIGRID.LONG_CYCLE"])


def _multigrid(source: Source) -> bool:
    return _long(source) or bool(source["MULTIGRID.SHORT_CYCLE"])


def _plan(source: Source) -> str:
    """The plan that the switches of both cycles choose."""
    names = [name for name in ("long", "short") if source[f"MULTIGRID.{name.upper()}_CYCLE"]]
    return "+".join(names) or "constant"


def _batch(source: Source) -> int:
    """Clips per step on all machines: PySlowFast's batch is that of one."""
    return int(source["TRAIN.BATCH_SIZE"]) * int(source["NUM_SHARDS"])


def _scaled(value: Any, source: Source) -> float:
    """A learning rate, which a switch multiplies by the number of machines."""
    return product(float(value), int(source["NUM_SHARDS"]) if source.get("SOLVER.BASE_LR_SCALE_NUM_SHARDS") else 1)


def _drops(source: Source) -> list[float]:
    """The epochs at which the LR drops: starts of LR stages after the first, before the end."""
    return [float(step) for step in source.get("SOLVER.STEPS") or () if 0 < step < source["SOLVER.MAX_EPOCH"]]


def _by_steps(source: Source) -> bool:
    return str(source["SOLVER.LR_POLICY"]).startswith("steps")


def _lr(key: str) -> Rule:
    return lambda value, source: Finding(kind="translated", reason=key, sets={key: _scaled(value, source)})


def _base_lr(value: Any, source: Source) -> Finding:
    """The LR of the first stage; the multiples of the LR stages are relative to it."""
    first = 1.0 if not _by_steps(source) or _long(source) or not source.get("SOLVER.LRS") else source["SOLVER.LRS"][0]
    return translated(training__lr=product(_scaled(value, source), float(first)))


def _policy(value: Any, source: Source) -> Finding:
    if value == "cosine":
        return translated(training__decay__law="cosine")
    if value == "steps_with_relative_lrs":
        return translated(training__decay__law="steps")
    raise RecipeError(f"{source.name}: SOLVER.LR_POLICY is {value!r}; accepted: 'cosine' and 'steps_with_relative_lrs'")


def _steps(value: Any, source: Source) -> Finding:
    if not _by_steps(source):
        return unneeded("the LR has no drops")(value, source)
    end = [step for step in value if step >= source["SOLVER.MAX_EPOCH"]]
    if end and _long(source):
        sets = {"training.decay.milestones": _drops(source)}
        why = f"a drop at {end[0]}, the end, adds a long cycle in PySlowFast; vcycle ends with the fine-tuning phase"
        return Finding(kind="differs", reason=why, sets=sets)
    return translated(training__decay__milestones=_drops(source))


def _factors(value: Any, source: Source) -> Finding:
    if not _by_steps(source):
        return unneeded("the LR has no drops")(value, source)
    if _long(source):
        return unneeded("the long cycle ignores it, and takes SOLVER.GAMMA")(value, source)
    factors = [float(factor) for factor in value[: len(_drops(source)) + 1]]
    if factors[0] == 1 and all(math.isclose(0.1 * one, other, rel_tol=1e-6) for one, other in pairwise(factors)):
        return translated(training__decay__gamma=0.1)
    sets = {"training.decay.factors": [factor / factors[0] for factor in factors[1:]]}
    return Finding(kind="translated", reason="training.lr, training.decay.factors", sets=sets)


def _gamma(value: Any, source: Source) -> Finding:
    if _by_steps(source) and _long(source):
        return translated(training__decay__gamma=value)
    return unneeded("only the long cycle uses it")(value, source)


def _warmup(value: Any, source: Source) -> Finding:
    if not value:
        return unneeded("no warmup")(value, source)
    sets = {"training.warmup.length": value}
    if not _long(source):
        return Finding(kind="translated", reason="training.warmup.length", sets=sets)
    why = (
        f"{value:g} epochs of the baseline, as in the paper; PySlowFast takes epochs of its enlarged batch, so its "
        "warmup has about 10 times fewer steps"
    )
    return Finding(kind="differs", reason=why, sets=sets)


def _when_warm(key: str) -> Rule:
    def rule(value: Any, source: Source) -> Finding:
        if not source["SOLVER.WARMUP_EPOCHS"]:
            return unneeded("no warmup")(value, source)
        return Finding(kind="translated", reason=key, sets={key: _scaled(value, source)})

    return rule


def _batch_norm(value: Any, source: Source) -> Finding:
    if _multigrid(source):
        return unneeded("multigrid sets it; training.bn_batch is MULTIGRID.BN_BASE_SIZE")(value, source)
    return translated("training.bn_batch")


def _if_multigrid(key: str, convert: Any = lambda value: value, *, cycle: str = "") -> Rule:
    """A key of the plan that is used."""

    def rule(value: Any, source: Source) -> Finding:
        if cycle not in _plan(source) or not _multigrid(source):
            return unneeded("the plan does not use it")(value, source)
        name = key.format(plan=_plan(source))
        return Finding(kind="translated", reason=name, sets={name: convert(value)})

    return rule


def _precise(value: Any, source: Source) -> Finding:
    if not source.get("BN.USE_PRECISE_STATS"):
        return unneeded("precise BN is off")(value, source)
    clips = int(source["BN.NUM_BATCHES_PRECISE"]) * _batch(source)
    found = translated(training__precise_bn=clips)
    if not _multigrid(source):
        return found
    why = f"{clips:,} clips at the baseline's shape; PySlowFast takes as many batches at the shape of the stage"
    return Finding(kind="differs", reason=why, sets=found.sets)


def _init(value: Any, source: Source) -> Finding:
    found = existing(value, "file", "init.path")
    if found.kind == "unneeded":
        return found
    return Finding(kind=found.kind, reason=found.reason, sets={**found.sets, "init.needed": True, "init.head": "new"})


def _inflate(value: Any, source: Source) -> Finding:
    if not value:
        return unneeded("no image network")(value, source)
    return translated(init__needed=True, init__head="new")


def _loss(value: Any, source: Source) -> Finding:
    if value in ("bce", "bce_logit"):
        return translated(training__multi_label=True)
    if value in ("cross_entropy", "soft_cross_entropy"):
        return unneeded("recognition's loss")(value, source)
    return differs("vcycle has cross-entropy, per video or per class")(value, source)


def _dataset(value: Any, source: Source) -> Finding:
    sets: dict[str, Any] = {} if value not in _LAYOUTS else {"data.layout": _LAYOUTS[value]}
    if value in _CLIPS:
        return Finding(kind="translated", reason="data", sets={**sets, "data.clips": _CLIPS[value]})
    return Finding(kind="differs", reason="give the videos with data=FOLDER", sets=sets)


def _test_size(value: Any, source: Source) -> Finding:
    sets = {"evaluation.size": value}
    short = value if source["TEST.NUM_SPATIAL_CROPS"] > 1 else source["DATA.TRAIN_JITTER_SCALES"][0]
    if short != source["DATA.TRAIN_JITTER_SCALES"][0]:
        sets["evaluation.short_side"] = short
    return Finding(kind="translated", reason=", ".join(sets), sets=sets)


def _rate(value: Any, source: Source) -> Finding:
    if source["TRAIN.DATASET"] == "ssv2":
        return unneeded("SSv2 takes one frame from each segment of the video")(value, source)
    return translated(sampling__stride=value)


def _fps(value: Any, source: Source) -> Finding:
    if source["TRAIN.DATASET"] == "ssv2":
        return unneeded("SSv2 takes one frame from each segment of the video")(value, source)
    if source["TRAIN.DATASET"] in _FPS:
        return unneeded("the frames of Charades have 24 a second")(value, source)
    return translated(sampling__fps=value)


def _scores(value: Any, source: Source) -> Finding:
    many = bool(source.get("DATA.MULTI_LABEL"))
    if value == ("sigmoid" if many else "softmax"):
        return unneeded("evaluation.scores is auto")(value, source)
    return translated(evaluation__scores=value)


def _when(switch: str, rule: Rule, off: str) -> Rule:
    """A key that counts only if a switch is on."""
    return lambda value, source: rule(value, source) if source.get(switch) else unneeded(off)(value, source)


def _rand_augment(value: Any, source: Source) -> Finding:
    """`rand-m7-n4-mstd0.5-inc1`: magnitude 7, 4 operations."""
    parts = str(value).split("-")
    numbers = {part[0]: int(part[1:]) for part in parts if part[:1] in "mn" and part[1:].isdigit()}
    sets = {"augment.randaugment.ops": numbers.get("n", 2), "augment.randaugment.magnitude": numbers.get("m", 9)}
    why = "torchvision's RandAugment: the magnitude has no noise, and the operations differ"
    return Finding(kind="differs", reason=why, sets=sets)


def _for_nonlocal(rule: Rule) -> Rule:
    return lambda value, source: (
        rule(value, source) if _nonlocal(source) else unneeded("no non-local block")(value, source)
    )


def _nonlocal(source: Source) -> list[list[int]]:
    """The blocks of each stage that a non-local block follows, of the first pathway; empty if there are none."""
    stages = [list(stage[0]) for stage in source.get("NONLOCAL.LOCATION") or ()]
    return stages if any(stages) else []


def _nonlocal_places(value: Any, source: Source) -> Finding:
    if not _nonlocal(source):
        return unneeded("no non-local block")(value, source)
    return (
        translated("model")
        if _nonlocal_every(source)
        else differs("vcycle has non-local blocks in networks of one pathway, at equal distances")(value, source)
    )


def _nonlocal_every(source: Source) -> tuple[int, ...] | None:
    """Blocks per non-local block in each stage, if they are regular."""
    if source["MODEL.ARCH"] not in ("i3d", "slow", "c2d"):
        return None
    blocks, every = BLOCKS[int(source["RESNET.DEPTH"])], []
    for places, count in zip(_nonlocal(source), blocks, strict=True):
        step = places[0] + 1 if places else 0
        if places != (list(range(step - 1, count, step)) if step else []):
            return None
        every.append(step)
    return tuple(every)


_EXPECTED = "vcycle's network has it the other way"


def _network(source: Source) -> dict[str, Any]:
    """The model and its options; empty for one that vcycle does not have."""
    arch, depth = source["MODEL.ARCH"], int(source["RESNET.DEPTH"])
    if arch not in ("slowfast", "i3d", "slow", "c2d") or depth not in BLOCKS:
        return {}
    width, blocks = int(source["RESNET.WIDTH_PER_GROUP"]), BLOCKS[depth]
    temporal = source["RESNET.NUM_BLOCK_TEMP_KERNEL"]
    options: dict[str, Any] = {
        "widths": tuple(width * factor for factor in WIDTHS),
        "blocks": blocks,
        "dropout": source["MODEL.DROPOUT_RATE"],
        "zero_gamma": bool(source["RESNET.ZERO_INIT_FINAL_BN"]),
    }
    if arch == "slowfast":
        options |= {
            "stem_width": width,
            "alpha": source["SLOWFAST.ALPHA"],
            "beta_inverse": source["SLOWFAST.BETA_INV"],
            "fusion_kernel": source["SLOWFAST.FUSION_KERNEL_SZ"],
            "fusion_ratio": source["SLOWFAST.FUSION_CONV_CHANNEL_RATIO"],
            "slow_kernels": per_block((1, 1, 3, 3), [stage[0] for stage in temporal], blocks),
            "fast_kernels": per_block((3, 3, 3, 3), [stage[-1] for stage in temporal], blocks),
        }
        return slowfast(options, int(source["DATA.NUM_FRAMES"]), float(source["DATA.SAMPLING_RATE"]))
    if every := _nonlocal_every(source) if _nonlocal(source) else None:
        form = "dot" if source["NONLOCAL.INSTANTIATION"] == "dot_product" else "softmax"
        options |= {"nonlocal_every": every, "nonlocal_form": form}
    if arch != "i3d":  # the stages of I3D that convolve in every other block are a preset of its name
        kernels = (1, 1, 3, 3) if arch == "slow" else (1, 1, 1, 1)
        options["temporal_kernels"] = per_block(kernels, [stage[0] for stage in temporal], blocks)
    return named_model(MODELS, [name for name in MODELS.names() if name.startswith(f"{arch}_")], options)


def _bn_batch(source: Source) -> int:
    """Clips that share BatchNorm's statistics."""
    if _multigrid(source):
        return int(source["MULTIGRID.BN_BASE_SIZE"])
    clips = max(1, int(source["TRAIN.BATCH_SIZE"]) // max(1, int(source["NUM_GPUS"])))
    kind = source["BN.NORM_TYPE"]
    if kind == "sync_batchnorm":
        return _batch(source) if source.get("BN.GLOBAL_SYNC") else clips * int(source["BN.NUM_SYNC_DEVICES"])
    return max(1, clips // int(source["BN.NUM_SPLITS"])) if kind == "sub_batchnorm" else clips


def _compose(source: Source) -> Mapping[str, Any]:
    for key, name in (("DETECTION.ENABLE", "detection"), ("MASK.ENABLE", "masked pretraining")):
        if source.get(key):
            raise RecipeError(f"{source.name}: {key} is true: {name} cannot be imported; accepted: classification")
    if source.get("TASK") == "ssl" or source["TRAIN.DATASET"] in ("ava", "imagenet"):
        key = "TASK" if source.get("TASK") == "ssl" else "TRAIN.DATASET"
        raise RecipeError(f"{source.name}: {key} is {source[key]!r}; accepted: classification of videos")
    dataset = source["TRAIN.DATASET"]
    found = {
        "training.batch": _batch(source),
        "training.lr_batch": _batch(source),
        "training.bn_batch": _bn_batch(source),
        "plan": _plan(source),
        **_network(source),
    }
    if dataset == "ssv2":
        found |= {"sampling.span": [1.0, 1.0], "sampling.segments": True}
    if dataset in _FPS:
        found["sampling.fps"] = _FPS[dataset]
    return found


_AUG_OFF = "AUG.ENABLE is off"
_MIX_OFF = "MIXUP.ENABLE is off"
_LOADS = unneeded("vcycle loads and decodes on its own")
_NETWORK = into("model")

PYSLOWFAST = Importer(
    tool="PySlowFast",
    suffixes=(".yaml", ".yml"),
    has="sections TRAIN, DATA, SOLVER and MODEL",
    owns=lambda data: {"TRAIN", "DATA", "MODEL"} <= data.keys(),
    model_key="MODEL.ARCH",
    numbers_as_text=True,
    compose=_compose,
    defaults={
        "AUG.ENABLE": False,
        "BN.NORM_TYPE": "batchnorm",
        "BN.NUM_BATCHES_PRECISE": 200,
        "BN.NUM_SPLITS": 1,
        "BN.NUM_SYNC_DEVICES": 1,
        "DATA.INV_UNIFORM_SAMPLE": False,
        "DATA.NUM_FRAMES": 8,
        "DATA.RANDOM_FLIP": True,
        "DATA.SAMPLING_RATE": 8,
        "DATA.TARGET_FPS": 30,
        "DATA.TEST_CROP_SIZE": 256,
        "DATA.TRAIN_CROP_SIZE": 224,
        "DATA.TRAIN_JITTER_SCALES": [256, 320],
        "MODEL.ARCH": "slowfast",
        "MODEL.DROPOUT_RATE": 0.5,
        "MULTIGRID.BN_BASE_SIZE": 8,
        "MULTIGRID.EPOCH_FACTOR": 1.5,
        "MULTIGRID.LONG_CYCLE": False,
        "MULTIGRID.SHORT_CYCLE": False,
        "NONLOCAL.INSTANTIATION": "dot_product",
        "NUM_GPUS": 1,
        "NUM_SHARDS": 1,
        "RESNET.DEPTH": 50,
        "RESNET.NUM_BLOCK_TEMP_KERNEL": [[3], [4], [6], [3]],
        "RESNET.WIDTH_PER_GROUP": 64,
        "RESNET.ZERO_INIT_FINAL_BN": False,
        "RNG_SEED": 1,
        "SLOWFAST.ALPHA": 8,
        "SLOWFAST.BETA_INV": 8,
        "SLOWFAST.FUSION_CONV_CHANNEL_RATIO": 2,
        "SLOWFAST.FUSION_KERNEL_SZ": 5,
        "SOLVER.BASE_LR": 0.1,
        "SOLVER.GAMMA": 0.1,
        "SOLVER.LR_POLICY": "cosine",
        "SOLVER.MAX_EPOCH": 300,
        "SOLVER.MOMENTUM": 0.9,
        "SOLVER.NESTEROV": True,
        "SOLVER.OPTIMIZING_METHOD": "sgd",
        "SOLVER.WARMUP_EPOCHS": 0.0,
        "SOLVER.WARMUP_START_LR": 0.01,
        "SOLVER.WEIGHT_DECAY": 1e-4,
        "TEST.NUM_ENSEMBLE_VIEWS": 10,
        "TEST.NUM_SPATIAL_CROPS": 3,
        "TRAIN.BATCH_SIZE": 64,
        "TRAIN.DATASET": "kinetics",
        "TRAIN.EVAL_PERIOD": 10,
    },
    rules={
        # The schedule.
        "MULTIGRID.SHORT_CYCLE": into("plan"),
        "MULTIGRID.LONG_CYCLE": into("plan"),
        "MULTIGRID.EPOCH_FACTOR": _if_multigrid("plans.{plan}.epoch_factor"),
        "MULTIGRID.LONG_CYCLE_FACTORS": _if_multigrid("plans.{plan}.long_shapes", cycle="long"),
        "MULTIGRID.SHORT_CYCLE_FACTORS": _if_multigrid("plans.{plan}.short_sizes", cycle="short"),
        "MULTIGRID.BN_BASE_SIZE": _if_multigrid("training.bn_batch"),
        "MULTIGRID.EVAL_FREQ": unneeded("vcycle validates by samples seen, at full resolution: run.validate_every"),
        "MULTIGRID.*": unneeded("PySlowFast sets it itself"),
        "SOLVER.MAX_EPOCH": to("training.epochs"),
        "SOLVER.LR_POLICY": _policy,
        "SOLVER.STEPS": _steps,
        "SOLVER.LRS": _factors,
        "SOLVER.GAMMA": _gamma,
        "SOLVER.BASE_LR": _base_lr,
        "SOLVER.BASE_LR_SCALE_NUM_SHARDS": into("training.lr"),
        "SOLVER.COSINE_END_LR": _lr("training.decay.floor"),
        "SOLVER.COSINE_AFTER_WARMUP": only(
            False, why="vcycle's cosine starts at step 0; warmup replaces its beginning"
        ),
        "SOLVER.WARMUP_EPOCHS": _warmup,
        "SOLVER.WARMUP_START_LR": _when_warm("training.warmup.start_lr"),
        "SOLVER.WARMUP_FACTOR": unneeded("PySlowFast does not use it"),
        "SOLVER.STEP_SIZE": unneeded("PySlowFast does not use it"),
        # The optimizer.
        "SOLVER.OPTIMIZING_METHOD": to("optimizer.name"),
        "SOLVER.MOMENTUM": to("optimizer.momentum"),
        "SOLVER.NESTEROV": to("optimizer.nesterov"),
        "SOLVER.BETAS": to("optimizer.betas"),
        "SOLVER.WEIGHT_DECAY": to("optimizer.weight_decay"),
        "SOLVER.DAMPENING": only(0, why="vcycle's SGD has no dampening; optimizer.options={dampening: …} sets it"),
        "SOLVER.ZERO_WD_1D_PARAM": only(True, why="norms and biases have no weight decay in vcycle"),
        "SOLVER.CLIP_GRAD_L2NORM": lambda value, source: (
            unneeded("no clipping")(value, source) if value is None else translated(training__clip_grad_norm=value)
        ),
        "SOLVER.CLIP_GRAD_VAL": only(None, why="vcycle clips by norm: training.clip_grad_norm"),
        "SOLVER.LAYER_DECAY": lambda value, source: (
            unneeded("none")(value, source) if value == 1 else translated(optimizer__layer_decay=value)
        ),
        "SOLVER.LARS_ON": only(False, why="vcycle has no LARS"),
        # The batch and BatchNorm.
        "TRAIN.BATCH_SIZE": into("training.batch", "training.lr_batch"),
        "NUM_SHARDS": into("training.batch"),
        "NUM_GPUS": _batch_norm,
        "SHARD_ID": unneeded("torchrun sets it"),
        "DIST_BACKEND": unneeded("vcycle chooses it"),
        "BN.NORM_TYPE": _batch_norm,
        "BN.NUM_SYNC_DEVICES": _batch_norm,
        "BN.NUM_SPLITS": _batch_norm,
        "BN.GLOBAL_SYNC": _batch_norm,
        "BN.USE_PRECISE_STATS": lambda value, source: (
            translated("training.precise_bn") if value else unneeded("precise BN is off")(value, source)
        ),
        "BN.NUM_BATCHES_PRECISE": _precise,
        "BN.WEIGHT_DECAY": only(0, why="norms have no weight decay in vcycle"),
        "MODEL.FROZEN_BN": lambda value, source: (
            translated(training__freeze="batchnorm") if value else unneeded("nothing is frozen")(value, source)
        ),
        # The data.
        "TRAIN.DATASET": _dataset,
        "DATA.PATH_TO_DATA_DIR": lambda value, source: existing(value, "folder", "data.path"),
        "DATA.PATH_PREFIX": lambda value, source: existing(value, "folder", "data.root"),
        "DATA.PATH_LABEL_SEPARATOR": unneeded("vcycle detects the separator of a list"),
        "DATA.NUM_FRAMES": to("training.frames"),
        "DATA.SAMPLING_RATE": _rate,
        "DATA.TARGET_FPS": _fps,
        "DATA.TRAIN_CROP_SIZE": to("training.size"),
        "DATA.TRAIN_JITTER_SCALES": to("sampling.short_side"),
        "DATA.INV_UNIFORM_SAMPLE": only(False, why="vcycle draws the short side uniformly, not its inverse"),
        "DATA.RANDOM_FLIP": to("sampling.flip"),
        "DATA.MEAN": to("sampling.mean"),
        "DATA.STD": to("sampling.std"),
        "DATA.REVERSE_INPUT_CHANNEL": unneeded("vcycle reads RGB, as the weights expect"),
        "DATA.INPUT_CHANNEL_NUM": only([3], [3, 3], why="vcycle's clips are RGB"),
        "DATA.MULTI_LABEL": lambda value, source: (
            translated(training__multi_label=True) if value else unneeded("one label per video")(value, source)
        ),
        "DATA.TRAIN_JITTER_SCALES_RELATIVE": only([], why="vcycle crops squares: sampling.field is the range of sizes"),
        "DATA.TRAIN_JITTER_ASPECT_RELATIVE": only([], why="vcycle does not change the aspect ratio of crops"),
        "DATA.TRAIN_JITTER_MOTION_SHIFT": only(False, why="vcycle does not move crops within a clip"),
        "DATA.TRAIN_JITTER_FPS": only(0, why="vcycle does not vary the frame rate at the full shape"),
        "DATA.USE_OFFSET_SAMPLING": unneeded("vcycle draws the start of a clip at random"),
        "DATA.TRAIN_CROP_NUM_*": only(1, why="vcycle takes one clip per video and step"),
        "DATA.COLOR_RND_GRAYSCALE": only(0, why="vcycle has no color augmentation but RandAugment"),
        "DATA.SSL_*": differs("vcycle has no self-supervised training"),
        "DATA.DECODING_*": _LOADS,
        "DATA.LOADER_*": _LOADS,
        "DATA.SKIP_ROWS": only(0, why="vcycle detects the header of a list"),
        "DATA_LOADER.NUM_WORKERS": to("data.workers"),
        "DATA_LOADER.*": _LOADS,
        "AUG.ENABLE": unneeded("each augmentation is set on its own"),
        "AUG.AA_TYPE": _when(
            "AUG.ENABLE",
            lambda value, source: _rand_augment(value, source) if value else unneeded("none")(value, source),
            _AUG_OFF,
        ),
        "AUG.NUM_SAMPLE": _when("AUG.ENABLE", only(1, why="vcycle has no repeated augmentation"), _AUG_OFF),
        "AUG.RE_PROB": _when("AUG.ENABLE", only(0, why="vcycle has no random erasing"), _AUG_OFF),
        "AUG.COLOR_JITTER": _when("AUG.ENABLE", unneeded("RandAugment replaces it"), _AUG_OFF),
        "AUG.INTERPOLATION": _when("AUG.ENABLE", only("bilinear", why="vcycle resizes bilinearly"), _AUG_OFF),
        "AUG.*": _when("AUG.ENABLE", differs("vcycle has RandAugment, mixup and CutMix"), _AUG_OFF),
        "MIXUP.ENABLE": unneeded("mixup and CutMix are set on their own"),
        "MIXUP.ALPHA": _when("MIXUP.ENABLE", to("augment.mixup"), _MIX_OFF),
        "MIXUP.CUTMIX_ALPHA": _when("MIXUP.ENABLE", to("augment.cutmix"), _MIX_OFF),
        "MIXUP.LABEL_SMOOTH_VALUE": _when("MIXUP.ENABLE", to("training.label_smoothing"), _MIX_OFF),
        "MIXUP.PROB": _when("MIXUP.ENABLE", only(1, why="vcycle mixes every batch"), _MIX_OFF),
        "MIXUP.SWITCH_PROB": _when("MIXUP.ENABLE", only(0.5, why="vcycle uses either as often"), _MIX_OFF),
        # The model.
        "MODEL.ARCH": _NETWORK,
        "MODEL.DROPOUT_RATE": _NETWORK,
        "MODEL.MODEL_NAME": unneeded("MODEL.ARCH names the model"),
        "MODEL.NUM_CLASSES": unneeded("the data has the classes"),
        "MODEL.LOSS_FUNC": _loss,
        "MODEL.HEAD_ACT": _scores,
        "MODEL.FC_INIT_STD": only(0.01, why="vcycle initializes the classifier with a deviation of 0.01"),
        "MODEL.DETACH_FINAL_FC": lambda value, source: (
            translated(training__freeze="backbone") if value else unneeded("nothing is frozen")(value, source)
        ),
        "MODEL.ACT_CHECKPOINT": only(False, why="vcycle splits batches that do not fit into micro-batches"),
        "MODEL.FP16_ALLREDUCE": lambda value, source: (
            translated(run__compress="fp16")
            if value
            else unneeded("gradients are exchanged as they are")(value, source)
        ),
        "MODEL.DROPCONNECT_RATE": only(0, why="vcycle's networks have no stochastic depth"),
        "SLOWFAST.*": lambda value, source: (
            translated("model") if source["MODEL.ARCH"] == "slowfast" else unneeded("not SlowFast")(value, source)
        ),
        "RESNET.DEPTH": _NETWORK,
        "RESNET.WIDTH_PER_GROUP": _NETWORK,
        "RESNET.ZERO_INIT_FINAL_BN": _NETWORK,
        "RESNET.NUM_BLOCK_TEMP_KERNEL": lambda value, source: (
            translated("model")
            if source["MODEL.ARCH"] != "i3d"
            else only([[3], [4], [6], [3]], [[3], [4], [23], [3]], why="I3D convolves in every other block")(
                value, source
            )
        ),
        "RESNET.NUM_GROUPS": only(1, why=_EXPECTED),
        "RESNET.TRANS_FUNC": only("bottleneck_transform", why=_EXPECTED),
        "RESNET.STRIDE_1X1": only(False, why=_EXPECTED),
        "RESNET.INPLACE_RELU": unneeded("the same result"),
        "RESNET.SPATIAL_STRIDES": only([[1], [2], [2], [2]], [[1, 1], [2, 2], [2, 2], [2, 2]], why=_EXPECTED),
        "RESNET.SPATIAL_DILATIONS": only([[1], [1], [1], [1]], [[1, 1], [1, 1], [1, 1], [1, 1]], why=_EXPECTED),
        "NONLOCAL.LOCATION": _nonlocal_places,
        "NONLOCAL.INSTANTIATION": _for_nonlocal(_NETWORK),
        "NONLOCAL.GROUP": only([[1], [1], [1], [1]], [[1, 1], [1, 1], [1, 1], [1, 1]], why=_EXPECTED),
        "NONLOCAL.POOL": _for_nonlocal(differs("vcycle pools 1×2×2 before non-local blocks")),
        # The initial weights.
        "TRAIN.CHECKPOINT_FILE_PATH": _init,
        "TRAIN.CHECKPOINT_INFLATE": _inflate,
        "TRAIN.CHECKPOINT_IN_INIT": _inflate,
        "TRAIN.CHECKPOINT_TYPE": unneeded("vcycle detects the kind of a file"),
        "TRAIN.CHECKPOINT_EPOCH_RESET": unneeded("init starts at step 0"),
        "TRAIN.CHECKPOINT_CLEAR_NAME_PATTERN": unneeded("vcycle maps the names"),
        # The evaluation.
        "TEST.NUM_ENSEMBLE_VIEWS": to("evaluation.clips"),
        "TEST.NUM_SPATIAL_CROPS": to("evaluation.crops"),
        "DATA.TEST_CROP_SIZE": _test_size,
        "DATA.ENSEMBLE_METHOD": lambda value, source: translated(
            evaluation__combine={"sum": "mean", "max": "max"}[value]
        ),
        "TEST.*": unneeded("`vcycle eval` tests a run"),
        # The run.
        "RNG_SEED": to("run.seed"),
        "TRAIN.MIXED_PRECISION": lambda value, source: translated(run__precision="fp16" if value else "fp32"),
        "TRAIN.EVAL_PERIOD": lambda value, source: (
            unneeded("multigrid ignores it")(value, source)
            if _multigrid(source)
            else translated(run__validate_every=value)
        ),
        "TRAIN.CHECKPOINT_PERIOD": unneeded("vcycle saves by steps: run.save_every"),
        "TRAIN.AUTO_RESUME": unneeded("`vcycle train --resume` resumes"),
        "TRAIN.ENABLE": only(True, why="the file is one for testing: check its batch, LR and length"),
        "TRAIN.KILL_LOSS_EXPLOSION_FACTOR": unneeded("run.bad_steps stops a run that diverges"),
        "OUTPUT_DIR": unneeded("`vcycle train --out` names the folder"),
        "LOG_PERIOD": unneeded("vcycle logs every step"),
        "LOG_MODEL_INFO": unneeded("vcycle always logs it"),
        "TENSORBOARD.*": unneeded("run.loggers=[tensorboard] logs to TensorBoard"),
        "DEMO.*": unneeded("`vcycle predict` classifies videos"),
        "BENCHMARK.*": unneeded("`vcycle bench` measures"),
        "DETECTION.*": unneeded("no detection"),
        "AVA.*": unneeded("no detection"),
        "TASK": unneeded("classification"),
    },
)
"""Translates PySlowFast's YAML files."""
