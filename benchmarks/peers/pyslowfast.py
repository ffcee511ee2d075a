"""A step of SlowFast 8×8 under PySlowFast's loop and loader, and under vcycle's, on the same videos and GPU.

python benchmarks/peers/pyslowfast.py --repository SlowFast --data videos/ [--batch 8] [--steps 60]

Expects a clone of github.com/facebookresearch/SlowFast that runs in this environment (its INSTALL.md), and videos as
`vcycle train` takes them. Without the clone it says so and ends. Nothing of it is copied here: its own
`tools/run_net.py` is started with its own configuration, and its log is read.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from vcycle.recipes.load import load_recipe, with_absolute_paths
from vcycle.recipes.videos import find_videos

CONFIG = "configs/Kinetics/SLOWFAST_8x8_R50_stepwise.yaml"
RECIPE = "kinetics/slowfast_8x8_r50"


def main() -> None:
    """Time both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repository", type=Path, default=Path("SlowFast"))
    parser.add_argument("--data", required=True)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--workers", type=int, default=8)
    asked = parser.parse_args()
    if not (asked.repository / CONFIG).is_file():
        print(f"skipped: no {CONFIG} in {asked.repository}; clone it, or give --repository", file=sys.stderr)
        return
    with TemporaryDirectory() as temporary:
        theirs = their_steps(asked, Path(temporary))
        mine = our_steps(asked, Path(temporary))
    for name, (step, data) in (("PySlowFast", theirs), ("vcycle", mine)):
        print(f"{name}: {1e3 * step:.0f} ms a step, {1e3 * data:.0f} ms of it waiting for data")
    print(f"vcycle takes 1/{theirs[0] / mine[0]:.2f} of the time")


def their_steps(asked: argparse.Namespace, work: Path) -> tuple[float, float]:
    """Median seconds of a step, and of waiting, in the second half of an epoch's start."""
    recipe = with_absolute_paths(load_recipe(RECIPE, [f"data={asked.data}"]))
    videos = find_videos(recipe, work).train
    lines = [f"{videos.path(item)} {videos.labels[item]}\n" for item in range(len(videos))]
    lines = (lines * (1 + asked.steps * asked.batch // len(lines)))[: asked.steps * asked.batch]
    for split in ("train", "val", "test"):
        (work / f"{split}.csv").write_text("".join(lines), encoding="utf-8")
    options = {
        "DATA.PATH_TO_DATA_DIR": work,
        "OUTPUT_DIR": work,
        "NUM_GPUS": 1,
        "TRAIN.BATCH_SIZE": asked.batch,
        "TRAIN.EVAL_PERIOD": 1000,
        "TRAIN.CHECKPOINT_PERIOD": 1000,
        "DATA_LOADER.NUM_WORKERS": asked.workers,
        "BN.USE_PRECISE_STATS": False,
        "SOLVER.MAX_EPOCH": 1,
        "MODEL.NUM_CLASSES": len(videos.classes),
        "TEST.ENABLE": False,
        "LOG_PERIOD": 1,
    }
    command = [sys.executable, "tools/run_net.py", "--cfg", CONFIG]
    command += [str(word) for pair in options.items() for word in pair]
    done = subprocess.run(
        command, cwd=asked.repository, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    found = [json.loads(text) for text in re.findall(r"json_stats: (\{.*\})", done.stdout)]
    steps = [(each["dt"], each["dt_data"]) for each in found if str(each.get("_type")).startswith("train_iter")]
    if done.returncode or not steps:
        raise SystemExit(f"PySlowFast did not train:\n{done.stdout[-2000:]}")
    return middle(steps)


def our_steps(asked: argparse.Namespace, work: Path) -> tuple[float, float]:
    """The same of a constant shape under vcycle."""
    options = [f"data={asked.data}", "plan=constant", f"training.batch={asked.batch}", f"data.workers={asked.workers}"]
    options += [f"training.steps={asked.steps}", "training.epochs=null", "training.decay=constant"]
    options += ["training.warmup=null", "run.validate_every=1000"]
    command = [sys.executable, "-m", "vcycle", "train", RECIPE, *options, "--out", str(work / "run")]
    subprocess.run(command, check=True)
    lines = [json.loads(line) for line in (work / "run" / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return middle([(line["seconds"], line["data_seconds"]) for line in lines if line["event"] == "step"])


def middle(steps: list[tuple[float, float]]) -> tuple[float, float]:
    """Medians over the second half, when loaders are under way."""
    late = steps[len(steps) // 2 :]
    return statistics.median(step for step, _ in late), statistics.median(data for _, data in late)


if __name__ == "__main__":
    main()
