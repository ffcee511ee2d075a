"""A step of SlowFast under PySlowFast's network, loader and optimizer, and under vcycle's, on the same videos.

python benchmarks/peers/pyslowfast.py data=FOLDER [KEY=VALUE...] [--steps 24] [--turns 3] [--out pyslowfast.jsonl]

Expects the `slowfast` package (README.md says how to install it); without it, it says so and ends. Nothing of it is
copied here, and nothing changed: its modules are put together as its training loop does, which the package lacks. On a
GPU where there is one. In turns; a line per turn and side is added to the results.
"""

import argparse
import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from vcycle.runs.experiment import Experiment
from vcycle.runs.train import train
from vcycle.tasks.recipes import load_recipe, with_absolute_paths
from vcycle.tasks.recognition.models import build_model
from vcycle.tasks.recognition.recipe import RecognitionRecipe
from vcycle.train.environment import environment
from vcycle.train.run import RunFolder

RECIPE = "kinetics/slowfast_8x8_r50"
SLOWFAST_8X8_R50: dict[str, Any] = {
    "MODEL.ARCH": "slowfast",
    "RESNET.ZERO_INIT_FINAL_BN": True,
    "RESNET.NUM_BLOCK_TEMP_KERNEL": [[3, 3], [4, 4], [6, 6], [3, 3]],
    "RESNET.SPATIAL_STRIDES": [[1, 1], [2, 2], [2, 2], [2, 2]],
    "RESNET.SPATIAL_DILATIONS": [[1, 1]] * 4,
    "NONLOCAL.LOCATION": [[[], []]] * 4,
    "NONLOCAL.GROUP": [[1, 1]] * 4,
    "SLOWFAST.ALPHA": 4,
    "SLOWFAST.BETA_INV": 8,
    "SLOWFAST.FUSION_CONV_CHANNEL_RATIO": 2,
    "SLOWFAST.FUSION_KERNEL_SZ": 7,
}


@dataclass(frozen=True)
class Timed:
    """Seconds of a step, and of them those that it waited for its batch."""

    step: float
    data: float


def main() -> None:
    """Time both, in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="+", metavar="KEY=VALUE")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("pyslowfast.jsonl"))
    asked = parser.parse_intermixed_args()
    if importlib.util.find_spec("slowfast") is None:
        print("skipped: the package slowfast is not installed here; README.md says how", file=sys.stderr)
        return
    recipe = recipe_of(asked.overrides, asked.steps)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    sides: dict[str, list[list[Timed]]] = {"PySlowFast": [], "vcycle": []}
    with TemporaryDirectory() as temporary:
        work = Path(temporary)
        experiment = Experiment(recipe, work)
        for turn in range(asked.turns):
            for side, go in (("PySlowFast", their_steps), ("vcycle", our_steps)):
                steps = go(experiment, work / f"{side}-{turn}", device)
                sides[side].append(steps)
                line = {"side": side, "turn": turn, "seconds": [step.step for step in steps]}
                line |= {"data_seconds": [step.data for step in steps]}
                line |= {"overrides": [each for each in asked.overrides if not each.startswith("data=")]}
                with asked.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line | {"environment": environment(device)}) + "\n")
    print("\n".join(table(sides)))


def recipe_of(overrides: list[str], steps: int) -> RecognitionRecipe:
    """The recipe of SlowFast, of a constant shape, as long as it is to be timed."""
    options = ["plan=constant", f"training.steps={steps}", "training.epochs=null", "training.decay=constant"]
    options += ["training.warmup=null", "sampling.short_side=[256, 320]", "run.validate_every=1000", *overrides]
    return with_absolute_paths(load_recipe(RECIPE, options))


def their_steps(experiment: Experiment, work: Path, device: torch.device) -> list[Timed]:
    """One epoch of as many batches as vcycle takes steps."""
    recipe, videos = experiment.recipe, experiment.splits
    detection = ModuleType("detectron2.layers")  # wanted by an import alone: no detector is built
    detection.ROIAlign = None  # type: ignore[attr-defined]
    sys.modules |= {"detectron2": ModuleType("detectron2"), "detectron2.layers": detection}
    from slowfast.config.defaults import get_cfg
    from slowfast.datasets.loader import construct_loader
    from slowfast.models.optimizer import construct_optimizer, get_epoch_lr, set_lr
    from slowfast.models.video_model_builder import SlowFastModel
    from slowfast.utils.meters import TrainMeter

    training, steps = recipe.training, recipe.training.steps or 0
    work.mkdir()
    clips = [f"{videos.train.path(item)} {videos.train.labels[item]}\n" for item in range(len(videos.train))]
    lines = (clips * -(-steps * training.batch // len(clips)))[: steps * training.batch]
    (work / "train.csv").write_text("".join(lines), encoding="utf-8")
    options = SLOWFAST_8X8_R50 | {
        "DATA.PATH_TO_DATA_DIR": str(work),
        "DATA.NUM_FRAMES": training.frames,
        "DATA.SAMPLING_RATE": int(recipe.sampling.stride),
        "DATA.CROP_SIZE": training.size,
        "DATA.TRAIN_CROP_SIZE": training.size,
        "DATA.TRAIN_JITTER_SCALES": list(recipe.sampling.short_side or ()),
        "DATA_LOADER.NUM_WORKERS": recipe.data.workers,
        "DATA_LOADER.PIN_MEMORY": device.type == "cuda",
        "MODEL.NUM_CLASSES": len(videos.train.classes),
        "TRAIN.BATCH_SIZE": training.batch,
        "SOLVER.MAX_EPOCH": 1,
    }
    cfg = get_cfg()
    cfg.merge_from_list([part for pair in options.items() for part in pair])
    torch.manual_seed(recipe.run.seed)
    model = SlowFastModel(cfg).to(device).train()
    if (theirs := parameters(model)) != (mine := parameters(build_model(recipe.model.name, len(videos.train.classes)))):
        raise SystemExit(f"the networks differ: PySlowFast's has {theirs:,} parameters, vcycle's {mine:,}")
    optimizer, meter = construct_optimizer(model, cfg), TrainMeter(steps, cfg)
    loader = construct_loader(cfg, "train")

    def train_on(clips: list[torch.Tensor], labels: torch.Tensor, place: int) -> None:
        clips, labels = [path.to(device, non_blocking=True) for path in clips], labels.to(device)
        lr = get_epoch_lr(place / steps, cfg)
        set_lr(optimizer, lr)
        scores = model(clips)
        loss = functional.cross_entropy(scores, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found = scores.topk(5).indices == labels[:, None]  # its own metric fails on a current torch
        errors = [100 - 100 * float(found[:, :top].any(1).float().mean()) for top in (1, 5)]
        meter.update_stats(*errors, loss.item(), lr, len(labels))

    return list(timed(loader, train_on))


def timed(loader: Any, train_on: Any) -> Iterator[Timed]:
    """Seconds of each step of a loop over a loader; a step ends where its loss is read, which waits for the device."""
    began = time.perf_counter()
    for place, (clips, labels, *_) in enumerate(loader):
        came = time.perf_counter()
        train_on(clips, labels, place)
        ended = time.perf_counter()
        yield Timed(ended - began, came - began)
        began = ended


def our_steps(experiment: Experiment, work: Path, _: torch.device) -> list[Timed]:
    """The same of a constant shape under vcycle."""
    run = RunFolder(work)
    train(experiment, experiment.plan(), run)
    lines = [json.loads(line) for line in run.log.read_text(encoding="utf-8").splitlines()]
    return [Timed(line["seconds"], line["data_seconds"]) for line in lines if line["event"] == "step"]


def parameters(model: nn.Module) -> int:
    """How many numbers a network learns."""
    return sum(parameter.numel() for parameter in model.parameters())


def table(sides: dict[str, list[list[Timed]]]) -> Iterator[str]:
    """Medians of each turn's second half, when loaders are under way: the turns' median, lowest and highest."""
    for side, turns in sides.items():
        late = [steps[len(steps) // 2 :] for steps in turns]
        step = spread([statistics.median(each.step for each in steps) for steps in late])
        data = spread([statistics.median(each.data for each in steps) for steps in late])
        yield f"{side}: {step} ms a step, {data} ms of it waiting for data"


def spread(seconds: list[float]) -> str:
    """Median, lowest and highest in milliseconds."""
    low, middle, high = (1e3 * each for each in (min(seconds), statistics.median(seconds), max(seconds)))
    return f"{middle:.0f} ({low:.0f} to {high:.0f})"


if __name__ == "__main__":
    main()
