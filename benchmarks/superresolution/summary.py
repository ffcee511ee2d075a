"""What the study came to: a table of plans, one of clips, and the picture of a crop.

Usage: python summary.py STUDY CLIPS   Both as study.sh makes them. Writes clips.jsonl and crop.png here.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from vcycle.bench.steps.work import step_flops
from vcycle.bench.steps.workload import workload_of
from vcycle.bench.study import run_folder
from vcycle.plan import BatchShape
from vcycle.tasks.recipes import load_recipe
from vcycle.tasks.superres import PairedDataset
from vcycle.tasks.superres.figures import restored_crops, restored_figure
from vcycle.tasks.superres.metrics import Protocol, clip_quality
from vcycle.tasks.superres.pairs.degrade import imresize
from vcycle.tasks.superres.pairs.layouts import read_pairs
from vcycle.tasks.superres.recipe import SuperresRecipe
from vcycle.tasks.superres.task import SUPERRESOLUTION

CONTROL = "control:hierarchical"

Run = dict[str, Any]
"""A run, or the quality of a clip, as its file has it."""


def read_runs(study: Path) -> dict[str, list[Run]]:
    """The runs of each plan, by seed, with PSNR and SSIM of each clip and where they are."""
    found: dict[str, list[Run]] = {}
    for line in (study / "results.jsonl").read_text().splitlines():
        run = json.loads(line)
        run["folder"] = run_folder(study, run["arm"], run["seed"], run["key"])
        run["clips"] = json.loads((run["folder"] / "eval-test.json").read_text())["clips"]
        found.setdefault(run["arm"], []).append(run)
    return found


def flops(recipe: Path, plan: str) -> int:
    """Floating-point operations of a whole training."""
    loaded = load_recipe(str(recipe), ["data.epoch=104"])
    assert isinstance(loaded, SuperresRecipe)
    workload = workload_of(loaded, 0)
    shapes = Counter(
        (step.shape.frames, step.shape.height, step.batch) for step in SUPERRESOLUTION.plan(loaded, 5, plan)
    )
    return sum(
        count * step_flops(workload, BatchShape(frames=frames, size=size, batch=batch, bn_batch=batch))
        for (frames, size, batch), count in shapes.items()
    )


def mean(clips: list[Run], key: str) -> float:
    """The mean over clips."""
    return fmean(clip[key] for clip in clips)


def spread(values: list[float], digits: int) -> str:
    """Mean and, of several values, their standard deviation."""
    return f"{fmean(values):.{digits}f}" + (f" ± {stdev(values):.{digits}f}" if len(values) > 1 else "")


def plan_rows(runs: dict[str, list[Run]], recipe: Path) -> list[str]:
    """A row for each plan; times and PSNR beside those of the constant shape and the control of the same seeds."""
    rows, work = [], {arm: flops(recipe, arm) for arm in runs}
    for arm, of in runs.items():
        seeds = {run["seed"]: run for run in of}
        cells = [arm, str(len(of)), str(of[0]["steps"]), spread([run["cpu_seconds"] for run in of], 1)]
        cells.append(f"{work['constant'] / work[arm]:.2f}")
        for other in ("constant", CONTROL):
            both = [(run, seeds[run["seed"]]) for run in runs[other] if run["seed"] in seeds]
            times = sum(theirs["cpu_seconds"] for theirs, _ in both) / sum(own["cpu_seconds"] for _, own in both)
            cells.append(f"{times:.2f}")
            gains = [own["test"] - theirs["test"] for theirs, own in both]
            cells.append(f"{fmean(gains):+.3f} ({', '.join(f'{gain:+.3f}' for gain in gains)})")
        cells.append(spread([run["val"] for run in of], 3))
        cells.append(spread([mean(run["clips"], "psnr") for run in of], 3))
        cells.append(spread([mean(run["clips"], "ssim") for run in of], 4))
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def clip_rows(runs: dict[str, list[Run]], clips: Path, out: Path) -> list[str]:
    """A row for bicubic interpolation and each plan, PSNR and SSIM of each clip; each run goes to a file."""
    dataset = PairedDataset(read_pairs(clips / "test"))
    plain = [
        clip_quality(imresize(pair.lr, 4).movedim(-1, -3), pair.hr.movedim(-1, -3), Protocol(channels="y"))
        for pair in map(dataset.whole, range(len(dataset)))
    ]
    rows = [f"| bicubic | {' | '.join(f'{q.psnr:.3f} | {q.ssim:.4f}' for q in plain)} |"]
    with out.open("w") as file:
        for arm, of in runs.items():
            cells = []
            for number in range(len(dataset)):
                cells.append(spread([run["clips"][number]["psnr"] for run in of], 3))
                cells.append(spread([run["clips"][number]["ssim"] for run in of], 4))
            rows.append(f"| {arm} | {' | '.join(cells)} |")
            for run in of:
                file.write(json.dumps({"arm": arm, "seed": run["seed"], "clips": run["clips"]}) + "\n")
    return rows


study, clips, here = Path(sys.argv[1]), Path(sys.argv[2]), Path(__file__).parent
runs = read_runs(study)
print(*plan_rows(runs, here / "superres.yaml"), "", *clip_rows(runs, clips, here / "clips.jsonl"), sep="\n")
shown = {"constant shape": runs["constant"][0]["folder"], "hierarchical": runs["hierarchical"][0]["folder"]}
restored_figure(restored_crops(shown, clip=1, side=96)).savefig(here / "crop.png", dpi=110)
