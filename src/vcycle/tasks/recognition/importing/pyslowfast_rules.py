"""What becomes of PySlowFast's keys that need more than a row of the table."""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from vcycle.errors import RecipeError
from vcycle.tasks.importing import (
    Finding,
    Rule,
    Source,
    differs,
    existing,
    finding_of,
    in_clips,
    named_model,
    product,
    translated,
    unneeded,
)
from vcycle.tasks.recognition.importing.networks import BLOCKS, WIDTHS, per_block, slowfast
from vcycle.tasks.recognition.models import MODELS

__all__ = [
    "EXPECTED",
    "base_lr",
    "batch_norm",
    "compose",
    "dataset",
    "epochs",
    "erase_fill",
    "eval_period",
    "factors",
    "for_nonlocal",
    "fps",
    "gamma",
    "if_erasing",
    "if_multigrid",
    "init",
    "loss",
    "lr",
    "multigrid",
    "nonlocal_places",
    "policy",
    "precise",
    "rand_augment",
    "rate",
    "repeats",
    "scores",
    "steps",
    "test_size",
    "warmup",
    "when",
]

_CLIPS = {"kinetics": 240_000, "ssv2": 168_913, "charades": 7_985}
"""Length of the training set by `TRAIN.DATASET`; Kinetics-400's is that of Wu et al. 2020."""
_FPS = {"charades": 24.0}
_LAYOUTS = {"ssv2": "ssv2", "charades": "charades"}


def _long(source: Source) -> bool:
    return bool(source["MULTIGRID.LONG_CYCLE"])


def multigrid(source: Source) -> bool:
    """Whether any cycle is on."""
    return _long(source) or bool(source["MULTIGRID.SHORT_CYCLE"])


def _plan(source: Source) -> str:
    """The plan that the switches of both cycles choose."""
    names = [name for name in ("long", "short") if source[f"MULTIGRID.{name.upper()}_CYCLE"]]
    return "+".join(names) or "constant"


def _repeats(source: Source) -> int:
    """Clips of each video in a batch, which PySlowFast counts once."""
    return int(source["AUG.NUM_SAMPLE"]) if source["AUG.ENABLE"] else 1


def _in_epochs(value: Any, source: Source) -> Any:
    """Epochs of PySlowFast, which are passes over the videos, in epochs as vcycle counts them, in clips."""
    return in_clips(value, _repeats(source))


def epochs(key: str) -> Rule:
    """A length, as `key` of the recipe."""
    return lambda value, source: translated(**{key: _in_epochs(value, source)})


def _batch(source: Source) -> int:
    """Clips per step on all machines: PySlowFast's batch is the videos of one."""
    return int(source["TRAIN.BATCH_SIZE"]) * int(source["NUM_SHARDS"]) * _repeats(source)


def _scaled(value: Any, source: Source) -> float:
    """A learning rate, which a switch multiplies by the number of machines."""
    return product(float(value), int(source["NUM_SHARDS"]) if source.get("SOLVER.BASE_LR_SCALE_NUM_SHARDS") else 1)


def _drops(source: Source) -> list[float]:
    """The epochs at which the LR drops: starts of LR stages after the first, before the end."""
    drops = (step for step in source.get("SOLVER.STEPS") or () if 0 < step < source["SOLVER.MAX_EPOCH"])
    return [float(_in_epochs(step, source)) for step in drops]


def _by_steps(source: Source) -> bool:
    return str(source["SOLVER.LR_POLICY"]).startswith("steps")


def lr(key: str) -> Rule:
    """An LR, as `key` of the recipe."""
    return lambda value, source: translated(**{key: _scaled(value, source)})


def base_lr(value: Any, source: Source) -> Finding:
    """The LR of the first stage; the multiples of the LR stages are relative to it."""
    first = 1.0 if not _by_steps(source) or _long(source) or not source.get("SOLVER.LRS") else source["SOLVER.LRS"][0]
    return translated(training__lr=product(_scaled(value, source), float(first)))


def policy(value: Any, source: Source) -> Finding:
    """`SOLVER.LR_POLICY`."""
    if value == "cosine":
        return translated(training__decay__law="cosine")
    if value == "steps_with_relative_lrs":
        return translated(training__decay__law="steps")
    raise RecipeError(f"{source.name}: SOLVER.LR_POLICY is {value!r}; accepted: 'cosine' and 'steps_with_relative_lrs'")


def steps(value: Any, source: Source) -> Finding:
    """`SOLVER.STEPS`."""
    if not _by_steps(source):
        return unneeded("the LR has no drops")
    end = [step for step in value if step >= source["SOLVER.MAX_EPOCH"]]
    if end and _long(source):
        why = f"a drop at {end[0]}, the end, adds a long cycle in PySlowFast; vcycle ends with the fine-tuning phase"
        return differs(why, training__decay__milestones=_drops(source))
    return translated(training__decay__milestones=_drops(source))


def factors(value: Any, source: Source) -> Finding:
    """`SOLVER.LRS`."""
    if not _by_steps(source):
        return unneeded("the LR has no drops")
    if _long(source):
        return unneeded("the long cycle ignores it, and takes SOLVER.GAMMA")
    factors = [float(factor) for factor in value[: len(_drops(source)) + 1]]
    if factors[0] == 1 and all(math.isclose(0.1 * one, other, rel_tol=1e-6) for one, other in pairwise(factors)):
        return translated(training__decay__gamma=0.1)
    return translated("training.lr", training__decay__factors=[factor / factors[0] for factor in factors[1:]])


def gamma(value: Any, source: Source) -> Finding:
    """`SOLVER.GAMMA`."""
    if _by_steps(source) and _long(source):
        return translated(training__decay__gamma=value)
    return unneeded("only the long cycle uses it")


def eval_period(value: Any, source: Source) -> Finding:
    """`TRAIN.EVAL_PERIOD`."""
    if multigrid(source):
        return unneeded("multigrid ignores it")
    return translated(run__validate_every=_in_epochs(value, source))


def warmup(value: Any, source: Source) -> Finding:
    """`SOLVER.WARMUP_EPOCHS`."""
    if not value:
        return unneeded("no warmup")
    if not _long(source):
        return translated(training__warmup__length=_in_epochs(value, source))
    why = (
        f"{value:g} epochs of the baseline, as in the paper; PySlowFast takes epochs of its enlarged batch, so its "
        "warmup has about 10 times fewer steps"
    )
    return differs(why, training__warmup__length=_in_epochs(value, source))


def batch_norm(value: Any, source: Source) -> Finding:
    """What decides the clips that share BatchNorm's statistics."""
    if multigrid(source):
        return unneeded("multigrid sets it; training.bn_batch is MULTIGRID.BN_BASE_SIZE")
    return translated("training.bn_batch")


def if_multigrid(key: str, *, cycle: str = "") -> Rule:
    """A key of the plan that is used."""

    def rule(value: Any, source: Source) -> Finding:
        if cycle not in _plan(source) or not multigrid(source):
            return unneeded("the plan does not use it")
        return translated(**{key.format(plan=_plan(source)): value})

    return rule


def precise(value: Any, source: Source) -> Finding:
    """`BN.NUM_BATCHES_PRECISE`."""
    if not source.get("BN.USE_PRECISE_STATS"):
        return unneeded("precise BN is off")
    clips = int(source["BN.NUM_BATCHES_PRECISE"]) * _batch(source)
    if not multigrid(source):
        return translated(training__precise_bn=clips)
    why = f"{clips:,} clips at the baseline's shape; PySlowFast takes as many batches at the shape of the stage"
    return differs(why, training__precise_bn=clips)


def init(value: Any, source: Source) -> Finding:
    """A file of initial weights."""
    found = existing(value, "file", "init.path")
    if found.kind == "unneeded":
        return found
    return Finding(kind=found.kind, reason=found.reason, sets={**found.sets, "init.needed": True, "init.head": "new"})


def loss(value: Any, source: Source) -> Finding:
    """`MODEL.LOSS_FUNC`."""
    if value in ("bce", "bce_logit"):
        return translated(training__multi_label=True)
    if value in ("cross_entropy", "soft_cross_entropy"):
        return unneeded("recognition's loss")
    return differs("vcycle has cross-entropy, per video or per class")


def dataset(value: Any, source: Source) -> Finding:
    """`TRAIN.DATASET`."""
    sets: dict[str, Any] = {} if value not in _LAYOUTS else {"data.layout": _LAYOUTS[value]}
    if value in _CLIPS:
        return Finding(kind="translated", reason="data", sets={**sets, "data.clips": _CLIPS[value]})
    return differs("give the videos with data=FOLDER", **sets)


def test_size(value: Any, source: Source) -> Finding:
    """`DATA.TEST_CROP_SIZE`."""
    sets = {"evaluation.size": value}
    short = value if source["TEST.NUM_SPATIAL_CROPS"] > 1 else source["DATA.TRAIN_JITTER_SCALES"][0]
    if short != source["DATA.TRAIN_JITTER_SCALES"][0]:
        sets["evaluation.short_side"] = short
    return translated(**sets)


def rate(value: Any, source: Source) -> Finding:
    """`DATA.SAMPLING_RATE`."""
    if source["TRAIN.DATASET"] == "ssv2":
        return unneeded("SSv2 takes one frame from each segment of the video")
    return translated(sampling__stride=value)


def fps(value: Any, source: Source) -> Finding:
    """`DATA.TARGET_FPS`."""
    if source["TRAIN.DATASET"] == "ssv2":
        return unneeded("SSv2 takes one frame from each segment of the video")
    if source["TRAIN.DATASET"] in _FPS:
        return unneeded("the frames of Charades have 24 a second")
    return translated(sampling__fps=value)


def scores(value: Any, source: Source) -> Finding:
    """`MODEL.HEAD_ACT`."""
    many = bool(source.get("DATA.MULTI_LABEL"))
    if value == ("sigmoid" if many else "softmax"):
        return unneeded("evaluation.scores is auto")
    return translated(evaluation__scores=value)


def when(key: str, rule: Rule, off: str) -> Rule:
    """A key that counts only if another one is on."""
    return lambda value, source: finding_of(rule, value, source) if source.get(key) else unneeded(off)


def rand_augment(value: Any, source: Source) -> Finding:
    """`rand-m7-n4-mstd0.5-inc1`: magnitude 7, 4 operations."""
    parts = str(value).split("-")
    numbers = {part[0]: int(part[1:]) for part in parts if part[:1] in "mn" and part[1:].isdigit()}
    why = "torchvision's RandAugment: the magnitude has no noise, and the operations differ"
    return differs(
        why, augment__randaugment__ops=numbers.get("n", 2), augment__randaugment__magnitude=numbers.get("m", 9)
    )


def if_erasing(rule: Rule) -> Rule:
    """A key that counts only if clips are erased."""
    return when("AUG.ENABLE", when("AUG.RE_PROB", rule, "nothing is erased"), "AUG.ENABLE is off")


def erase_fill(value: Any, source: Source) -> Finding:
    """`AUG.RE_MODE`."""
    fills = {"pixel": "noise", "const": "mean"}
    if value in fills:
        return translated(augment__erasing__fill=fills[value])
    return differs("vcycle fills with noise per pixel, or with the mean")


def repeats(value: Any, source: Source) -> Finding:
    """`AUG.NUM_SAMPLE`."""
    if value == 1:
        return unneeded("vcycle does the same")
    why = (
        f"training.batch and all epochs count clips, {value} times PySlowFast's; each clip of a video draws its own "
        "frames too, PySlowFast's share them"
    )
    return differs(why, augment__repeats=value)


def for_nonlocal(found: Finding) -> Rule:
    """A key that counts only in networks with non-local blocks."""
    return lambda value, source: found if _nonlocal(source) else unneeded("no non-local block")


def _nonlocal(source: Source) -> list[list[int]]:
    """The blocks of each stage that a non-local block follows, of the first pathway; empty if there are none."""
    stages = [list(stage[0]) for stage in source.get("NONLOCAL.LOCATION") or ()]
    return stages if any(stages) else []


def nonlocal_places(value: Any, source: Source) -> Finding:
    """`NONLOCAL.LOCATION`."""
    if not _nonlocal(source):
        return unneeded("no non-local block")
    return (
        translated("model")
        if _nonlocal_every(source)
        else differs("vcycle has non-local blocks in networks of one pathway, at equal distances")
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


EXPECTED = "vcycle's network has it the other way"


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
    if multigrid(source):
        return int(source["MULTIGRID.BN_BASE_SIZE"])
    clips = max(1, int(source["TRAIN.BATCH_SIZE"]) * _repeats(source) // max(1, int(source["NUM_GPUS"])))
    kind = source["BN.NORM_TYPE"]
    if kind == "sync_batchnorm":
        return _batch(source) if source.get("BN.GLOBAL_SYNC") else clips * int(source["BN.NUM_SYNC_DEVICES"])
    return max(1, clips // int(source["BN.NUM_SPLITS"])) if kind == "sub_batchnorm" else clips


def compose(source: Source) -> Mapping[str, Any]:
    """The keys of the recipe that depend on several keys."""
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
