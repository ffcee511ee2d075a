"""BasicSR's own training beside vcycle's: its dataset, loader, model and loop, with the same network on the same clips.

    python -m benchmarks.superresolution.basicsr_arms turns RECIPE [KEY=VALUE...] --work FOLDER --out basicsr.jsonl
    python -m benchmarks.superresolution.basicsr_arms train RECIPE [KEY=VALUE...] --work FOLDER --out basicsr.jsonl

`turns` measures what a part of each training costs; `train` trains each to its end, and tests it. See
`benchmarks/peers/measuring.py`. `pip install --no-deps basicsr==1.4.2` installs BasicSR; it needs lmdb and OpenCV too.
"""

import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml
from benchmarks.peers.measuring import Arm, Asked, Job, Study, command_line
from PIL import Image
from torch import nn
from torchvision.transforms import functional

from vcycle.tasks.recipes import load_recipe, with_absolute_paths
from vcycle.tasks.superres.pairs.layouts import read_pairs
from vcycle.tasks.superres.recipe import SuperresRecipe
from vcycle.tasks.superres.scale import SCALE

HIGH, LOW, STARTS = "high", "low", "starts.txt"
"""What BasicSR reads, in the folder for work: pictures at both resolutions, and the list of clips."""
LONGEST = 100
"""Frames of a clip: the dataset has the length of those of REDS."""


def frames(asked: Asked) -> Sequence[str]:
    """Write the training clips as BasicSR reads them, as PNG files and as LMDB by its own tool.

    Its dataset draws one of the frames that are listed, and begins there. So those are listed from which a clip of the
    recipe's length is whole.
    """
    from basicsr.utils.lmdb_util import make_lmdb_from_imgs

    recipe = with_absolute_paths(load_recipe(asked.recipe, asked.of(Arm())))
    if not isinstance(recipe, SuperresRecipe):
        raise SystemExit(f"a recipe of super-resolution is needed, not of {recipe.task}")
    pairs = read_pairs(Path(str(recipe.data.path)) / "train")
    if pairs.low is None:
        raise SystemExit("the clips have no low-resolution frames: make them by prepare.py")
    listed, keys = [], []
    for item, name in enumerate(pairs.high.names):
        count = pairs.info(item).frames
        if not recipe.training.frames <= count <= LONGEST:
            raise SystemExit(f"{name}: {count} frames; accepted: {recipe.training.frames} to {LONGEST}")
        listed.append(f"{name} {count - recipe.training.frames + 1} _\n")
        keys += [f"{name}/{frame:08}" for frame in range(count)]
        for folder, clips in ((HIGH, pairs.high), (LOW, pairs.low)):
            (asked.work / folder / name).mkdir(parents=True, exist_ok=True)
            for frame, pixels in enumerate(clips.read(item, range(count))):
                Image.fromarray(pixels).save(asked.work / folder / name / f"{frame:08}.png")
    (asked.work / STARTS).write_text("".join(listed), encoding="utf-8")
    for folder in (HIGH, LOW):
        root = str(asked.work / folder)
        make_lmdb_from_imgs(root, f"{root}.lmdb", [f"{key}.png" for key in keys], keys)
    return [str(asked.work / HIGH), str(asked.work / "tiles"), "--to", "tiles"]


def basicsr(job: Job, *, lmdb: bool = False) -> nn.Module:
    """Train by BasicSR's `train_pipeline`, from an options file as its users write one.

    Its BasicVSR always has a flow network and 64 channels in the last layers. Another network is registered with it, as
    its users register theirs.

    Args:
        job: What is trained.
        lmdb: Read from LMDB instead of PNG files.
    """
    from basicsr.models.video_recurrent_model import VideoRecurrentModel
    from basicsr.train import train_pipeline
    from basicsr.utils.registry import ARCH_REGISTRY, MODEL_REGISTRY

    models: list[Any] = []

    class WaitingModel(VideoRecurrentModel):  # type: ignore[misc]
        """Its model, which tells of each step."""

        def __init__(self, opt: Any) -> None:
            super().__init__(opt)
            models.append(self)
            job.begin()

        def optimize_parameters(self, current_iter: int) -> None:
            super().optimize_parameters(current_iter)
            job.after_step()

    def RecipeNetwork() -> nn.Module:  # noqa: N802  # a name in its registry
        return job.network()

    MODEL_REGISTRY.register(WaitingModel)
    ARCH_REGISTRY.register(RecipeNetwork)
    job.work.mkdir(parents=True, exist_ok=True)
    file = job.work / "options.yml"
    file.write_text(yaml.safe_dump(_options(job, lmdb=lmdb)), encoding="utf-8")
    sys.argv = ["train.py", "-opt", str(file)]
    train_pipeline(str(job.work))
    network: nn.Module = models[0].net_g
    return network


def _options(job: Job, *, lmdb: bool) -> dict[str, Any]:
    """BasicSR's options: those of its BasicVSR on REDS, with the recipe's clips, network, length and loss."""
    recipe = job.experiment.recipe
    if not isinstance(recipe, SuperresRecipe):
        raise TypeError(f"a recipe of super-resolution is needed, not of {recipe.task}")
    training, options, suffix = recipe.training, recipe.model.options, ".lmdb" if lmdb else ""
    own = {"type": "BasicVSR", "num_feat": options["channels"], "num_block": options["blocks"]}
    return {
        "name": "basicvsr",
        "model_type": "WaitingModel",
        "scale": SCALE,
        "num_gpu": 0,
        "manual_seed": recipe.run.seed,
        "datasets": {
            "train": {
                "name": "clips",
                "type": "REDSRecurrentDataset",
                "dataroot_gt": str(job.work.parent / f"{HIGH}{suffix}"),
                "dataroot_lq": str(job.work.parent / f"{LOW}{suffix}"),
                "meta_info_file": str(job.work.parent / STARTS),
                "val_partition": "REDS4",
                "test_mode": False,
                "io_backend": {"type": "lmdb" if lmdb else "disk"},
                "num_frame": training.frames,
                "gt_size": SCALE * training.size,
                "interval_list": [1],
                "random_reverse": False,
                "use_hflip": recipe.sampling.flip,
                "use_rot": recipe.sampling.transpose,
                "num_worker_per_gpu": recipe.data.workers,
                "batch_size_per_gpu": training.batch,
                "dataset_enlarge_ratio": 200,
                "prefetch_mode": None,
                "pin_memory": False,
            }
        },
        "network_g": own if options["flow"] == "spynet" else {"type": "RecipeNetwork"},
        "path": {"pretrain_network_g": None, "strict_load_g": True, "resume_state": None},
        "train": {
            "optim_g": {
                "type": "Adam",
                "lr": training.lr,
                "weight_decay": recipe.optimizer.weight_decay,
                "betas": list(recipe.optimizer.betas),
            },
            "scheduler": {
                "type": "CosineAnnealingRestartLR",
                "periods": [len(job.plan)],
                "restart_weights": [1],
                "eta_min": training.lr_floor,
            },
            "total_iter": len(job.plan),
            "warmup_iter": -1 if training.warmup is None else training.warmup.steps,
            "pixel_opt": {
                "type": "CharbonnierLoss",
                "loss_weight": 1.0,
                "reduction": "mean",
                "eps": training.epsilon**2,
            },
        },
        "logger": {"print_freq": 100, "save_checkpoint_freq": 100_000, "use_tb_logger": False},
    }


def imports(_: Asked) -> None:
    """Import BasicSR, which needs a module that torchvision 0.17 has taken away."""
    gone = ModuleType("torchvision.transforms.functional_tensor")
    vars(gone)["rgb_to_grayscale"] = functional.rgb_to_grayscale
    sys.modules[gone.__name__] = gone
    import_module("basicsr.train")


ALIGNED = ("model.options.flow=spynet", "model.options.head_channels=64", "training.steps=6")
"""BasicSR's BasicVSR, which is slower: a step for each stage."""
ARMS = {
    "BasicSR, PNG": Arm(basicsr),
    "BasicSR, LMDB": Arm(partial(basicsr, lmdb=True)),
    "vcycle, constant": Arm(),
    "vcycle, hierarchical": Arm(plan="hierarchical"),
    "BasicSR, PNG, its BasicVSR": Arm(basicsr, overrides=ALIGNED),
    "vcycle, constant, its BasicVSR": Arm(overrides=ALIGNED),
    "vcycle, hierarchical, its BasicVSR": Arm(plan="hierarchical", overrides=ALIGNED),
}
"""All arms."""
STUDY = Study(
    arms=ARMS,
    turns=(tuple(ARMS)[:4], tuple(ARMS)[4:]),
    full=("BasicSR, PNG", "vcycle, constant", "vcycle, hierarchical"),
    short=("training.steps=18", "training.warmup=null"),
    part=3,
    prepare=frames,
    preload=imports,
    packages=("torch", "torchvision", "basicsr", "opencv-python-headless", "lmdb", "numpy"),
    scope="comparison",
    measure="psnr",
)

if __name__ == "__main__":
    command_line(STUDY, __doc__)
