"""What BatchNorm in groups costs at coarse shapes: realised / work with the plan's groups, and with one group.

python benchmarks/steps/groups.py > groups.log

For machines that others use: every step is taken between two of the full shape, and compared with those by processor
time; the median of fifteen, in random order, and in brackets the second lowest and second highest.
"""

import random
import statistics
from dataclasses import replace
from pathlib import Path

from vcycle.bench.steps.stepper import Stepper
from vcycle.bench.steps.work import step_flops
from vcycle.bench.steps.workload import workload_of
from vcycle.plan import BatchShape
from vcycle.tasks.recipes import load_recipe
from vcycle.tasks.recognition.recipe import RecognitionRecipe
from vcycle.tasks.recognition.task import RECOGNITION

GESTURES = str(Path(__file__).parents[1] / "recognition" / "gestures.yaml")


def main() -> None:
    """Print a line for each shape and group."""
    random.seed(0)
    for name, recipe in (("demo", load_recipe("demo/digits")), ("gestures", load_recipe(GESTURES))):
        assert isinstance(recipe, RecognitionRecipe)
        workload = workload_of(recipe, 10)
        plans = [RECOGNITION.plan(recipe, 1000, plan) for plan in ("constant", "cascade", "long+short")]
        base = plans[0].baseline_shape
        shapes = list(dict.fromkeys([base, *plans[1].shapes, plans[2].shapes[0]]))
        stepper = Stepper(workload, plans[0])
        flops = {shape: step_flops(workload, shape) for shape in shapes}
        arms = [(s, group) for s in shapes for group in dict.fromkeys([s.bn_batch, max(s.bn_batch, s.batch)])]
        found: dict[tuple[BatchShape, int], list[float]] = {arm: [] for arm in arms}
        for turn in range(16):
            for shape, group in random.sample(arms, len(arms)):
                before, step, after = (
                    stepper.run(each, 1).cpu for each in (base, replace(shape, bn_batch=group), base)
                )
                if turn:  # the first is a warm-up
                    found[shape, group].append(flops[shape] / flops[base] * (before + after) / 2 / step)
        for (shape, group), ratios in found.items():
            low, *_, high = sorted(ratios)[1:-1]
            print(f"{name} {shape} BN {group}: {statistics.median(ratios):.2f} ({low:.2f} to {high:.2f})", flush=True)


if __name__ == "__main__":
    main()
