"""The loop that a user has, and vcycle's, on the same videos with the same network.

python benchmarks/peers/plain.py [RECIPE] [KEY=VALUE ...] [--workers 0] [--out results.jsonl]

The user's is PyTorch's `DataLoader` over a dataset that decodes each video with PyAV, then resizes, crops and
normalises the clip, and a loop over `optimizer.step()`. Both train the constant shape for as many steps, with the same
optimizer and LR law; the recipe's own plan is trained beside them. In turns, each twice.
"""

import argparse
import json
import math
import os
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import av
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from vcycle.data import VideoList
from vcycle.runs.evaluate import validator
from vcycle.runs.experiment import Experiment
from vcycle.runs.train import train
from vcycle.tasks.recipes import load_recipe, with_absolute_paths
from vcycle.tasks.recognition.init_weights import build_model
from vcycle.tasks.recognition.recipe import RecognitionRecipe
from vcycle.train.environment import environment
from vcycle.train.optimizer import build_optimizer
from vcycle.train.ranks import SINGLE_PROCESS
from vcycle.train.run import RunFolder


class Clips(Dataset[tuple[Tensor, int]]):
    """Videos, decoded whole."""

    def __init__(self, videos: VideoList, recipe: RecognitionRecipe) -> None:
        self.videos, self.frames, self.size = videos, recipe.training.frames, recipe.training.size
        self.span, self.field = recipe.sampling.span or (1.0, 1.0), recipe.sampling.field or (1.0, 1.0)
        self.mean, self.std = (
            torch.tensor(each).view(3, 1, 1, 1) for each in (recipe.sampling.mean, recipe.sampling.std)
        )

    def __len__(self) -> int:
        return len(self.videos)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        with av.open(str(self.videos.path(index))) as container:
            frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        span = random.uniform(*self.span) * (len(frames) - 1)
        start = random.uniform(0, len(frames) - 1 - span)
        chosen = [round(start + span * (k + 0.5) / self.frames) for k in range(self.frames)]
        clip = torch.stack([torch.from_numpy(frames[k]) for k in chosen]).permute(0, 3, 1, 2).float() / 255
        height, width = clip.shape[-2:]
        side = self.size / random.uniform(*self.field) / min(height, width)
        size = (max(self.size, round(height * side)), max(self.size, round(width * side)))
        clip = functional.interpolate(clip, size=size, mode="bilinear", antialias=True)
        top, left = (random.randint(0, room - self.size) for room in size)
        clip = clip[..., top : top + self.size, left : left + self.size].transpose(0, 1)
        return (clip - self.mean) / self.std, self.videos.labels[index]


def plain(recipe: RecognitionRecipe, videos: VideoList, steps: int, workers: int) -> tuple[nn.Module, float, float]:
    """Train as a user would: the model, seconds, and of the processor."""
    torch.manual_seed(recipe.run.seed)
    random.seed(recipe.run.seed)
    model = build_model(recipe, len(videos.classes)).train()
    optimizer = build_optimizer(recipe.optimizer, model)
    loader = DataLoader(Clips(videos, recipe), recipe.training.batch, shuffle=True, drop_last=True, num_workers=workers)
    began, cpu, done = time.perf_counter(), time.process_time(), 0
    while done < steps:
        for clips, labels in loader:
            for group in optimizer.param_groups:
                group["lr"] = recipe.training.lr * 0.5 * (1 + math.cos(math.pi * done / steps))
            loss = functional.cross_entropy(model(clips), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            done += 1
            if done == steps:
                break
    return model, time.perf_counter() - began, time.process_time() - cpu


def ours(experiment: Experiment, plan: str, folder: Path) -> tuple[nn.Module, float, float]:
    """Train under a plan: the model, seconds, and of the processor."""
    fitted = train(experiment, experiment.plan(plan), RunFolder(folder))
    return fitted.model, fitted.seconds, fitted.cpu_seconds


def main() -> None:
    """Train all of them, and write a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", nargs="?", default="videos/small")
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results.jsonl"))
    asked = parser.parse_intermixed_args()
    overrides = [*asked.overrides, f"data.workers={asked.workers}"]
    recipe = with_absolute_paths(load_recipe(asked.recipe, overrides))
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        experiment = Experiment(recipe, work)
        videos = experiment.splits
        steps = len(experiment.plan("constant"))
        test = validator(experiment.evaluator("val" if videos.test is None else "test"), ranks=SINGLE_PROCESS)
        here = environment(torch.device("cpu"))
        for turn in range(2):
            arms: dict[str, Any] = {"plain loop": lambda: plain(recipe, videos.train, steps, asked.workers)}
            for name in ("constant", recipe.plan):
                arms[name] = lambda name=name, turn=turn: ours(experiment, name, work / f"{name}-{turn}")
            for arm, go in arms.items():
                model, seconds, cpu_seconds = go()
                found = test(model.eval(), torch.device("cpu"))
                line = {"arm": arm, "turn": turn, "seconds": seconds, "cpu_seconds": cpu_seconds, "top1": found.value}
                line |= {
                    "recipe": asked.recipe,
                    "overrides": overrides,
                    "load": os.getloadavg()[0],
                    "environment": here,
                }
                with asked.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                print(f"{arm}, turn {turn}: {seconds:.1f} s, processor {cpu_seconds:.1f} s, top-1 {found.value:.1%}")


if __name__ == "__main__":
    main()
