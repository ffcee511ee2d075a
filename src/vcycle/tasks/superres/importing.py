"""Translates BasicSR's option files."""

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
    to,
    translated,
    unneeded,
)
from vcycle.tasks.superres.models import MODELS
from vcycle.tasks.superres.scale import SCALE

__all__ = ["BASICSR"]

_GPUS = 8
"""GPUs of the published trainings, which `num_gpu: auto` stands for."""
_EPOCHS = {"REDS": 26_600, "Vimeo90K": 64_612}
"""Samples per epoch: 266 clips of 100 frames, and one per septuplet."""
_LAYOUTS = {"REDS": "reds", "Vimeo90K": "vimeo90k"}
_TRAIN, _SCHEDULE, _NETWORK = "datasets.train", "train.scheduler", into("model")


def _family(source: Source) -> str | None:
    """The dataset by its type, such as REDSRecurrentDataset."""
    kind = str(source.get(f"{_TRAIN}.type", ""))
    return next((name for name in _LAYOUTS if kind.startswith(name)), None)


def _batch(source: Source) -> int:
    gpus = source.get("num_gpu", "auto")
    return int(source[f"{_TRAIN}.batch_size_per_gpu"]) * (_GPUS if gpus == "auto" else max(1, int(gpus)))


def _gpus(value: Any, source: Source) -> Finding:
    if value == "auto":
        why = f"{_GPUS} GPUs, as in the published trainings: training.batch is {_batch(source)}"
        return Finding(kind="differs", reason=why)
    return translated("training.batch")


def _kind(value: Any, source: Source) -> Finding:
    family = _family(source)
    if family is None:
        return differs("give the clips with data=FOLDER; the layout is detected")(value, source)
    return translated(data__layout=_LAYOUTS[family], data__epoch=_EPOCHS[family])


def _high(value: Any, source: Source) -> Finding:
    """The folder of the whole dataset: REDS' and Vimeo-90K's have the high-resolution frames in a folder below it."""
    folder = value if _family(source) is None or not isinstance(value, str) else str(Path(value).parent)
    return existing(folder, "folder", "data.path")


def _low(value: Any, source: Source) -> Finding:
    if _family(source) == "REDS":
        return unneeded("REDS has its low-resolution frames beside the others")(value, source)
    found = existing(value, "folder", "data.low")
    if found.kind != "differs":
        return found
    kind = "bd" if re.search(r"(^|[/_])BD", str(value)) else "bicubic"
    why = f"computed from the others by data.degradation={kind}, unless data.low=FOLDER gives them"
    return Finding(kind="differs", reason=why, sets={"data.degradation": kind})


def _frames(source: Source) -> int:
    """Frames per clip; -1 are all 7 of a septuplet."""
    frames = int(source[f"{_TRAIN}.num_frame"])
    frames = 7 if frames == -1 and _family(source) == "Vimeo90K" else frames
    return 2 * frames if source.get(f"{_TRAIN}.flip_sequence") else frames


def _rotations(value: Any, source: Source) -> Finding:
    found = translated(sampling__transpose=bool(value))
    if bool(value) == bool(source.get(f"{_TRAIN}.use_hflip")):
        return found
    why = "vcycle flips in both directions or in none: sampling.flip; BasicSR's rotations include vertical flips"
    return Finding(kind="differs", reason=why, sets=found.sets)


def _periods(value: Any, source: Source) -> Finding:
    if len(value) == 1 and value[0] == source["train.total_iter"]:
        return unneeded("one cosine, as vcycle's")(value, source)
    return differs("one cosine over the whole training; a plan restarts it at each stage")(value, source)


def _scheduler(value: Any, source: Source) -> Finding:
    if value in ("CosineAnnealingRestartLR", "TrueCosineAnnealingLR"):
        return unneeded("the LR follows a cosine")(value, source)
    return differs("the LR follows a cosine in vcycle")(value, source)


def _warmup(value: Any, source: Source) -> Finding:
    return unneeded("no warmup")(value, source) if value <= 0 else translated(training__warmup__steps=value)


def _frozen(part: str) -> Rule:
    return lambda value, source: (
        unneeded("nothing is frozen")(value, source)
        if not value
        else Finding(
            kind="translated", reason=f"training.{part}.frozen_steps", sets={f"training.{part}.frozen_steps": value}
        )
    )


def _loss(value: Any, source: Source) -> Finding:
    if value == "CharbonnierLoss":
        return translated(training__epsilon=math.sqrt(float(source.get("train.pixel_opt.eps", 1e-12))))
    if value == "L1Loss":
        why = "the Charbonnier loss, which is the L1 loss but for differences near 0"
        return Finding(kind="differs", reason=why, sets={"training.epsilon": 1e-6})
    return differs("vcycle has the Charbonnier loss")(value, source)


def _init(value: Any, source: Source) -> Finding:
    if source.get("path.pretrain_network_g") and source.get("network_g.spynet_path") == value:
        return unneeded("path.pretrain_network_g holds the whole network")(value, source)
    return existing(value, "file", "init.path")


def _channels(value: Any, source: Source) -> Finding:
    return translated(evaluation__channels="y" if value else "rgb")


def _steps_to_epochs(value: Any, source: Source) -> Finding:
    family = _family(source)
    if family is None:
        return unneeded("vcycle validates once per epoch of samples: run.validate_every")(value, source)
    epochs = float(value) * _batch(source) / _EPOCHS[family]
    return translated(run__validate_every=float(f"{epochs:.3g}"))


def _network(source: Source) -> dict[str, Any]:
    """The model and its options; empty for one that vcycle does not have."""
    options: dict[str, Any] = {"zero_last": False, "channels": source.get("network_g.num_feat", 64)}
    if source.get("network_g.type") == "BasicVSR":
        options["blocks"] = source.get("network_g.num_block", 15)
        return named_model(MODELS, [name for name in MODELS.names() if name.startswith("basicvsr")], options)
    if source.get("network_g.type") == "EDVR":
        options |= {
            "window": source.get("network_g.num_frame", 5),
            "groups": source.get("network_g.deformable_groups", 8),
            "front_blocks": source.get("network_g.num_extract_block", 5),
            "back_blocks": source.get("network_g.num_reconstruct_block", 10),
            "attention": bool(source.get("network_g.with_tsa", True)),
        }
        return named_model(MODELS, [name for name in MODELS.names() if name.startswith("edvr")], options)
    return {}


def _compose(source: Source) -> Mapping[str, Any]:
    if source.get("scale") != SCALE:
        raise RecipeError(f"{source.name}: scale is {source.get('scale')!r}; accepted: {SCALE}")
    if f"{_TRAIN}.gt_size" not in source:
        raise RecipeError(f"{source.name}: key 'datasets.train.gt_size' is missing: accepted are options for training")
    if f"{_TRAIN}.num_frame" not in source:
        raise RecipeError(f"{source.name}: key 'datasets.train.num_frame' is missing: accepted are options for videos")
    return {
        "training.batch": _batch(source),
        "training.frames": _frames(source),
        "training.size": int(source[f"{_TRAIN}.gt_size"]) // SCALE,
        "plan": "constant",
        **_network(source),
    }


_LOADS = unneeded("vcycle loads and decodes on its own")

BASICSR = Importer(
    tool="BasicSR",
    suffixes=(".yml", ".yaml"),
    has="sections datasets, network_g and train",
    owns=lambda data: {"datasets", "network_g", "train"} <= data.keys(),
    model_key="network_g.type",
    compose=_compose,
    rules={
        "name": unneeded("`vcycle train --out` names the folder"),
        "model_type": unneeded("network_g names the model"),
        "scale": only(SCALE, why=f"vcycle restores ×{SCALE}"),
        "num_gpu": _gpus,
        "manual_seed": to("run.seed"),
        # The data.
        f"{_TRAIN}.name": unneeded("the dataset's type tells"),
        f"{_TRAIN}.type": _kind,
        f"{_TRAIN}.dataroot_gt": _high,
        f"{_TRAIN}.dataroot_lq": _low,
        f"{_TRAIN}.dataroot_flow": only(None, why="vcycle estimates flow in the network"),
        f"{_TRAIN}.meta_info_file": unneeded("vcycle lists the clips"),
        f"{_TRAIN}.val_partition": only("REDS4", why="vcycle leaves out the four clips of REDS4"),
        f"{_TRAIN}.test_mode": only(False, why="the training clips are trained on"),
        f"{_TRAIN}.io_backend.*": unneeded("vcycle reads images, videos, or tiles: `vcycle prepare --to tiles`"),
        f"{_TRAIN}.num_frame": into("training.frames"),
        f"{_TRAIN}.gt_size": into("training.size"),
        f"{_TRAIN}.interval_list": only([1], why="vcycle takes consecutive frames"),
        f"{_TRAIN}.random_reverse": only(False, why="vcycle does not reverse clips"),
        f"{_TRAIN}.use_hflip": to("sampling.flip", convert=bool),
        f"{_TRAIN}.use_rot": _rotations,
        f"{_TRAIN}.flip_sequence": to("sampling.mirrored", convert=bool),
        f"{_TRAIN}.num_worker_per_gpu": to("data.workers"),
        f"{_TRAIN}.batch_size_per_gpu": into("training.batch"),
        f"{_TRAIN}.dataset_enlarge_ratio": unneeded("vcycle's stream of samples has no end"),
        f"{_TRAIN}.use_shuffle": unneeded("vcycle always shuffles"),
        f"{_TRAIN}.prefetch_mode": _LOADS,
        f"{_TRAIN}.pin_memory": _LOADS,
        "datasets.val.dataroot_gt": lambda value, source: (
            unneeded("vcycle validates on REDS4")(value, source)
            if _family(source) == "REDS"
            else existing(value, "folder", "data.val")
        ),
        "datasets.val.dataroot_lq": unneeded("vcycle finds the low-resolution frames beside the others"),
        "datasets.val.num_frame": unneeded("the model takes what it needs"),
        "datasets.val.padding": unneeded("the model pads its windows"),
        "datasets.val.*": _LOADS,
        "datasets.test*": unneeded("`vcycle eval` tests a run: data.test=FOLDER"),
        # The network.
        "network_g.type": _NETWORK,
        "network_g.num_feat": _NETWORK,
        "network_g.num_block": _NETWORK,
        "network_g.num_frame": _NETWORK,
        "network_g.deformable_groups": _NETWORK,
        "network_g.num_extract_block": _NETWORK,
        "network_g.num_reconstruct_block": _NETWORK,
        "network_g.with_tsa": _NETWORK,
        "network_g.num_in_ch": only(3, why="vcycle's clips are RGB"),
        "network_g.num_out_ch": only(3, why="vcycle's clips are RGB"),
        "network_g.center_frame_idx": only(None, why="vcycle restores the center frame"),
        "network_g.hr_in": only(False, why="vcycle's EDVR takes small frames"),
        "network_g.with_predeblur": only(False, why="vcycle's EDVR has no deblurring module"),
        "network_g.ema_decay": differs("BasicSR takes train.ema_decay; training.ema sets it"),
        "network_g.spynet_path": _init,
        "path.pretrain_network_g": _init,
        "path.strict_load_g": unneeded("vcycle says which weights do not fit"),
        "path.resume_state": only(None, why="vcycle resumes its own runs"),
        # The training.
        "train.total_iter": to("training.steps"),
        "train.optim_g.type": to("optimizer.name", convert=str.lower),
        "train.optim_g.lr": to("training.lr"),
        "train.optim_g.weight_decay": to("optimizer.weight_decay"),
        "train.optim_g.betas": to("optimizer.betas"),
        f"{_SCHEDULE}.type": _scheduler,
        f"{_SCHEDULE}.periods": _periods,
        f"{_SCHEDULE}.restart_weights": lambda value, source: (
            unneeded("one cosine, as vcycle's")
            if len(value) == 1
            else differs("one cosine over the whole training; plans.NAME.stage_lrs sets the peak of each stage")
        )(value, source),
        f"{_SCHEDULE}.eta_min": to("training.lr_floor"),
        f"{_SCHEDULE}.T_max": unneeded("the cosine is as long as the training"),
        "train.warmup_iter": _warmup,
        "train.fix_flow": _frozen("flow"),
        "train.flow_lr_mul": to("training.flow.lr_factor"),
        "train.tsa_iter": _frozen("backbone"),
        "train.dcn_lr_mul": only(1, why="vcycle trains the offsets of EDVR at the LR of the rest"),
        "train.ema_decay": lambda value, source: (
            translated(training__ema=value) if value else unneeded("no EMA")(value, source)
        ),
        "train.pixel_opt.type": _loss,
        "train.pixel_opt.eps": into("training.epsilon"),
        "train.pixel_opt.loss_weight": unneeded("Adam's steps do not depend on the scale of the loss"),
        "train.pixel_opt.reduction": unneeded("Adam's steps do not depend on the scale of the loss"),
        # The evaluation and the run.
        "val.val_freq": _steps_to_epochs,
        "val.save_img": unneeded("`vcycle upscale` writes images"),
        "val.metrics.*.type": unneeded("vcycle measures PSNR and SSIM"),
        "val.metrics.*.crop_border": to("evaluation.crop"),
        "val.metrics.*.test_y_channel": _channels,
        "val.metrics.*.better": unneeded("vcycle knows which is better"),
        "logger.save_checkpoint_freq": to("run.save_every", convert=int),
        "logger.print_freq": unneeded("vcycle logs every step"),
        "logger.use_tb_logger": unneeded("run.loggers=[tensorboard] logs to TensorBoard"),
        "logger.wandb*": unneeded("run.loggers=[wandb] logs to Weights & Biases"),
        "dist_params.*": unneeded("torchrun sets it"),
        "find_unused_parameters": unneeded("vcycle knows which parameters are frozen"),
    },
)
"""Translates BasicSR's option files."""
