"""One training of the demo on 720 validation clips, without a test split; appends a line to trials.jsonl.

python trials.py WORK SEED PLAN [KEY=VALUE...]

WORK keeps the generated clips and the runs. Processor time is that of one thread.
"""

import json
import sys
from pathlib import Path

from vcycle.runs.experiment import Experiment
from vcycle.runs.train import train
from vcycle.tasks.recipes import load_recipe
from vcycle.train.run import RunFolder

LOG = Path(__file__).with_name("trials.jsonl")


def main() -> None:
    """Train, or resume, and log the last validation."""
    work, seed, plan, *changes = sys.argv[1:]
    clips = {"train": load_recipe("demo/digits", changes).data.digits.clips["train"], "val": 60}
    settings = [f"data.digits.clips={json.dumps(clips)}", "run.threads=1", "run.validate_every=1000"]
    recipe = load_recipe("demo/digits", [*changes, *settings, f"run.seed={seed}", f"plan={plan}"])
    experiment = Experiment(recipe, Path(work))
    folder = RunFolder(Path(work) / "runs" / f"{len(list(Path(work).glob('runs/*')))}-{plan.replace(':', '_')}")
    trained = train(experiment, experiment.plan(plan), folder, recipe=recipe)
    line = {
        "seed": int(seed),
        "plan": plan,
        "changes": changes,
        "train_clips": clips["train"],
        "steps": trained.steps,
        "samples": trained.samples,
        "cpu_seconds": round(trained.cpu_seconds, 1),
        "val": trained.curve[-1].evaluation.value,
    }
    with LOG.open("a", encoding="utf-8") as log:
        log.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
