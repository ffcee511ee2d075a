"""The worker pool against PyTorch's DataLoader: the same dataset, requests and batches, and only the transport differs.

Times both loaders in turns, with as many workers, at every batch shape of a recipe's plan, over the files as they are,
prepared video and prepared arrays. Prints the pool's clips per second over the DataLoader's, and the DataLoader's
processor time per clip over the pool's: above 1 the pool is better. Processor time is that of all processes, the
supervisor among them. Starting and ending workers is timed apart, as seconds per iteration over the dataset.

    python transports.py VIDEOS [--recipe videos/small] [--files 6] [--repeats 3] [--seconds 0.6] [--source "video"]
"""

import argparse
import json
import os
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader

from vcycle.bench.data.study import some_videos
from vcycle.bench.timing import Spread, ratios
from vcycle.data import (
    FileSource,
    FrameSource,
    PlanBatchSampler,
    PreparedSource,
    PrepareSettings,
    VideoDataset,
    loader,
    prepare_videos,
)
from vcycle.data.batch import Batch, collate
from vcycle.data.layouts import VideoList, read_videos
from vcycle.plan import Baseline, BatchShape, Plan, constant
from vcycle.tasks.base import tasks
from vcycle.tasks.recipes import load_recipe
from vcycle.train.environment import machine, versions

_UNTIMED = 4
"""Batches that let workers start, and fill what is loaded ahead; as many may be loaded ahead when the clock starts, so
that clips per second mean little where few batches are timed."""


class Taken(NamedTuple):
    """What one iteration took: seconds per clip by the clock and of the processor, and seconds around the clips."""

    wall: float
    cpu: float
    around: float


def pool(dataset: VideoDataset, plan: Plan, workers: int) -> Iterator[Batch]:
    """The batches of a plan, through the pool."""
    return iter(loader(dataset, plan, workers=workers))


def torch_loader(dataset: VideoDataset, plan: Plan, workers: int) -> Iterator[Batch]:
    """The same batches, through PyTorch's DataLoader."""
    sampler = PlanBatchSampler(plan, len(dataset), seed=0)
    return iter(DataLoader(dataset, batch_sampler=sampler, collate_fn=collate, num_workers=workers))


LOADERS: dict[str, Callable[[VideoDataset, Plan, int], Iterator[Batch]]] = {"pool": pool, "torch": torch_loader}


def processor_seconds() -> float:
    """Of this process and of its children that have ended."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in spent)


def measure(make: Callable[..., Iterator[Batch]], dataset: VideoDataset, plan: Plan, workers: int) -> Taken:
    """One iteration, from the first process to the end of the last."""
    cpu, began = processor_seconds(), time.perf_counter()
    batches = make(dataset, plan, workers)
    for _ in range(_UNTIMED):
        next(batches)
    start = time.perf_counter()
    clips = sum(len(batch.clips) for batch in batches)
    wall = time.perf_counter() - start
    if hasattr(batches, "close"):
        batches.close()
    del batches
    around = time.perf_counter() - began - wall
    return Taken(wall / clips, (processor_seconds() - cpu) / plan.samples, around)


def plan_of(shape: BatchShape, batch: int, steps: int) -> Plan:
    """A plan of one batch shape."""
    return constant(Baseline(batch=batch, frames=shape.frames, size=shape.size, clips=batch, lr=0.1, steps=steps))


def seconds_per_clip(dataset: VideoDataset, shape: BatchShape) -> float:
    """In this process, without a loader."""
    requests = next(iter(PlanBatchSampler(plan_of(shape, 4, 2), len(dataset))))
    for timed in (False, True):
        start = time.perf_counter()
        for request in requests:
            dataset[request]
        if timed:
            return (time.perf_counter() - start) / len(requests)
    raise AssertionError


def compared(dataset: VideoDataset, shape: BatchShape, workers: int, *, repeats: int, seconds: float) -> dict[str, Any]:
    """Both loaders in turns, at one batch shape."""
    clips = workers * seconds / seconds_per_clip(dataset, shape)
    steps = _UNTIMED + min(max(round(clips / shape.batch), 6 * workers), 200)
    plan = plan_of(shape, shape.batch, steps)
    taken: dict[str, list[Taken]] = {name: [] for name in LOADERS}
    for turn in range(repeats):
        for name in sorted(LOADERS, reverse=bool(turn % 2)):
            taken[name].append(measure(LOADERS[name], dataset, plan, workers))

    def column(name: str, field: str) -> list[float]:
        return [getattr(each, field) for each in taken[name]]

    return {
        "steps": steps,
        "clips_per_second": ratios(column("torch", "wall"), column("pool", "wall"))._asdict(),
        "cpu": ratios(column("torch", "cpu"), column("pool", "cpu"))._asdict(),
        "wall_ms": {name: Spread.of([1e3 * value for value in column(name, "wall")])._asdict() for name in LOADERS},
        "cpu_ms": {name: Spread.of([1e3 * value for value in column(name, "cpu")])._asdict() for name in LOADERS},
        "around_ms": {name: Spread.of([1e3 * value for value in column(name, "around")])._asdict() for name in LOADERS},
    }


def sources_of(videos: VideoList, folder: Path, short_side: int) -> dict[str, FrameSource]:
    """The files as they are, and prepared in both forms."""
    sources: dict[str, FrameSource] = {"video": FileSource(videos)}
    forms: tuple[tuple[str, Any], ...] = (("prepared video", "video"), ("prepared array", "array"))
    for name, form in forms:
        prepare_videos({"train": videos}, folder / form, PrepareSettings(to=form, levels=(short_side,)))
        sources[name] = PreparedSource(folder / form, "train")
    return sources


def same_batches(dataset: VideoDataset, shape: BatchShape) -> bool:
    """Whether both loaders give the same clips, labels and order."""
    plan = plan_of(shape, 3, 3)
    pairs = zip(pool(dataset, plan, 1), torch_loader(dataset, plan, 1), strict=True)
    return all(torch.equal(a, b) for one, other in pairs for a, b in zip(one[:4], other[:4], strict=True))


def main() -> None:
    """Measure, and print a row for each source, batch shape and number of workers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", type=Path, help="a list of videos, or a folder of them, as a recipe's data takes it")
    parser.add_argument("--recipe", default="videos/small")
    parser.add_argument("--files", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--source", choices=("video", "prepared video", "prepared array"), help="measure only this one")
    parser.add_argument("--seconds", type=float, default=0.6, help="time that one worker loads in one turn, about")
    parser.add_argument("--json", type=Path, help="file to which the figures are written")
    options = parser.parse_args()
    torch.set_num_threads(1)
    recipe = load_recipe(options.recipe, [f"data={options.videos}"])
    task: Any = tasks[recipe.task]
    grids = task.grids(recipe)
    # The plan of a large set has all of the schedule's batch shapes.
    shapes = sorted({shape for shape in task.plan(recipe, 100_000).shapes}, key=lambda shape: shape.shape.voxels)
    videos, _ = some_videos(read_videos(options.videos, "train"), options.files)
    print(json.dumps({"machine": machine(), "versions": versions(), "load": os.getloadavg()}))
    rows = []
    with TemporaryDirectory() as folder:
        for name, source in sources_of(videos, Path(folder), round(recipe.training.size * 8 / 7)).items():
            if options.source not in (None, name):
                continue
            dataset = VideoDataset(videos, grids, source=source)
            if not same_batches(dataset, shapes[0]):
                raise SystemExit(f"{name}: the two loaders give different batches")
            for shape in shapes:
                for workers in (1, 2):
                    row = compared(dataset, shape, workers, repeats=options.repeats, seconds=options.seconds)
                    rows.append({"source": name, "shape": str(shape), "workers": workers} | row)
                    speed, cpu = Spread(**row["clips_per_second"]), Spread(**row["cpu"])
                    print(
                        f"| {name} | {shape} | {workers} | {row['wall_ms']['torch']['median']:.2f} "
                        f"| {row['wall_ms']['pool']['median']:.2f} "
                        f"| {speed.median:.2f} ({speed.low:.2f} to {speed.high:.2f}) "
                        f"| {cpu.median:.2f} ({cpu.low:.2f} to {cpu.high:.2f}) "
                        f"| {row['around_ms']['torch']['median']:.0f} / {row['around_ms']['pool']['median']:.0f} |",
                        flush=True,
                    )
    print(json.dumps({"load": os.getloadavg()}))
    if options.json:
        options.json.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
