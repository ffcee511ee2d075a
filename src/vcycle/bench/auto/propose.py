"""Proposes a plan for a recipe: times its steps on this machine, trains a pilot, and says what the choice rests on."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vcycle.bench.auto.candidates import LONGEST, Candidate, Planned, Seconds, candidates, fitted, further, seconds_of
from vcycle.bench.auto.choose import Reached, preferred, refusal, shortest, shortlist, time_to
from vcycle.bench.auto.pilot import HeldOut, pilot
from vcycle.bench.auto.reasons import reasons_of
from vcycle.bench.runs import Arm, ArmRun, Failure
from vcycle.bench.steps.turns import Clock, Effort, StepTimes, kept, time_steps
from vcycle.bench.steps.workload import workload_of
from vcycle.bench.study import steps_key
from vcycle.config.recipe import RecipeBase
from vcycle.errors import VcycleError
from vcycle.plan import Plan
from vcycle.runs.experiment import Experiment
from vcycle.tasks.base import Measure
from vcycle.train.callbacks import Callbacks
from vcycle.train.lock import training_lock
from vcycle.utils.folders import make_folder

__all__ = ["Found", "Wanted", "propose"]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the plan is for, and how much the search may cost."""

    budget: float | None = None
    """Seconds that the training may take; None: those of the recipe's own plan."""
    target: float | None = None
    """The value to reach in as little time as possible, in the measure's scale; None: as good as possible in the
    budget."""
    share: float = 0.25
    """The budget of a pilot's longest training, as a share of the plan's; 0 for no pilot."""
    plans: int = 6
    """The number of plans in the pilot's first rung; half of them are in the second."""
    effort: Effort = field(default_factory=lambda: Effort(repeats=3, seconds=0.3))
    """How long the steps are timed."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """A proposed plan, and what it rests on."""

    chosen: Planned
    own: Plan
    """The recipe's own plan."""
    constant: Plan
    """The constant shape at the recipe's length."""
    budget: float
    measure: Measure
    wanted: Wanted
    seconds: Seconds
    clock: Clock
    """What `seconds` are."""
    planned: Sequence[tuple[Planned, str | None]]
    """Every plan that fits the budget, and why it is out of bounds, if it is."""
    reached: dict[str, list[Reached]]
    """What the pilot's trainings reached, by label."""
    held_out: int
    """Items that judged the pilot."""
    timing_seconds: float
    """Wall-clock seconds of timing steps, when they were timed."""
    pilot_seconds: float
    """Wall-clock seconds of the pilot, now."""

    def overrides(self, given: RecipeBase) -> list[str]:
        """The overrides that choose the plan."""
        return self.chosen.candidate.overrides(given, self.chosen.length)

    def as_data(self, given: RecipeBase) -> dict[str, Any]:
        """The proposal as plain data."""
        return {
            "plan": self.chosen.candidate.name(self.chosen.length),
            "overrides": self.overrides(given),
            "reasons": reasons_of(self),
            "steps": len(self.chosen.plan),
            "samples": self.chosen.plan.samples,
            "seconds": self.chosen.seconds,
            "constant_seconds": seconds_of(self.constant, self.seconds),
            "own_seconds": seconds_of(self.own, self.seconds),
            "budget_seconds": self.budget,
            "target": self.wanted.target,
            "is_estimate": self.wanted.target is not None,
            "clock": self.clock,
            "measure": asdict(self.measure),
            "held_out": self.held_out,
            "search": {
                "timing_seconds": self.timing_seconds,
                "pilot_seconds": self.pilot_seconds,
                "pilot_cpu_seconds": sum(r.cpu_seconds for each in self.reached.values() for r in each),
            },
            "shapes": [{**asdict(shape), "ms": 1e3 * taken} for shape, taken in self.seconds.items()],
            "candidates": [self._row(planned, out) for planned, out in self.planned],
        }

    def _row(self, planned: Planned, out: str | None) -> dict[str, Any]:
        return {
            "plan": planned.candidate.name(planned.length),
            "label": planned.candidate.label,
            "own": planned.candidate.own,
            "chosen": planned.candidate == self.chosen.candidate,
            "steps": len(planned.plan),
            "samples": planned.plan.samples,
            "seconds": planned.seconds,
            "work": planned.plan.work(),
            "full_share": planned.full_share,
            "score": planned.score,
            "out_of_bounds": out,
            "pilot": [asdict(reached) for reached in self.reached.get(planned.candidate.label, ())],
        }


def propose(
    recipe: RecipeBase,
    out: Path,
    wanted: Wanted,
    *,
    callbacks: Callbacks,
    on_start: Callable[[Arm, int], None] = lambda *_: None,
    on_run: Callable[[ArmRun | Failure], None] = lambda _: None,
) -> Found:
    """Propose a plan for a recipe. Nothing of the recipe is changed, and its test data is not read.

    Args:
        recipe: The recipe, of any task, with its data.
        out: Folder for caches, the measured times and the pilot's trainings; a second call resumes.
        wanted: What the plan is for.
        callbacks: Receive steps, messages and progress.
        on_start: Called with the arm and seed when a training starts.
        on_run: Called with every run when it ends.

    Raises:
        RecipeError: if the recipe names no data, or the task cannot hold out a part of it.
        PlanError: if the recipe's own plan cannot be built.
        VcycleError: if no plan fits the budget or reaches the target.
    """
    say, progress = callbacks.on_message, callbacks.on_progress
    experiment = Experiment(recipe, out, on_progress=progress, on_message=say)
    experiment.plan()  # refused before the data is searched
    experiment.leave_out()
    own, constant = experiment.plan(), experiment.plan("constant")
    for note in experiment.check(own, fresh=True):
        say(note)
    held = HeldOut(experiment) if wanted.share else None  # refuses before anything is timed
    samples = len(experiment.splits.train)
    known = list(candidates(recipe, samples))
    make_folder(out)
    with training_lock(out, say):
        longest = max(LONGEST, own.samples / (own.baseline.total_steps * own.baseline.batch))
        plans = [constant, own, *(plan for _, plan in known)]
        plans += further(recipe, samples, known, longest)
        timed = _timed(experiment, plans, wanted.effort, out)
        seconds = timed.seconds
        budget = wanted.budget if wanted.budget is not None else seconds_of(own, seconds)
        fitting = [fitted(c, recipe, samples, seconds, budget, longest) for c, _ in known]
        planned = [(each, refusal(each)) for each in fitting if each is not None]
        within = [each for each, reason in planned if reason is None]
        if not within:
            raise _too_short(budget, wanted, [shortest(c, recipe, samples, seconds, one) for c, one in known])
        tried, reached, began = shortlist(within, wanted.plans), dict[str, list[Reached]](), time.perf_counter()
        if held is not None and (len(tried) > 1 or wanted.target is not None):
            budgets = [wanted.share / 2 * budget, wanted.share * budget]
            reached = pilot(held, tried, seconds, budgets, out, callbacks=callbacks, on_start=on_start, on_run=on_run)
        taken = time.perf_counter() - began
    measure = experiment.task.measure(recipe)
    items = 0 if held is None else len(held.held)
    if wanted.target is None:
        chosen = preferred(tried, reached, held_out=items, is_share=measure.is_share)
    else:
        reach = _Reach(recipe=recipe, samples=samples, seconds=seconds, longest=longest, measure=measure)
        chosen = reach.soonest(
            wanted.target, [(each.candidate, reached.get(each.candidate.label, [])) for each in tried]
        )
    return Found(
        chosen=chosen,
        own=own,
        constant=constant,
        budget=budget,
        measure=measure,
        wanted=wanted,
        seconds=seconds,
        clock=timed.clock,
        planned=planned,
        reached=reached,
        held_out=items if reached else 0,
        timing_seconds=timed.taken_seconds,
        pilot_seconds=taken if reached else 0.0,
    )


@dataclass(frozen=True, kw_only=True)
class _Reach:
    """Finds the plan that reaches a target first, by what a pilot reached."""

    recipe: RecipeBase
    samples: int
    seconds: Seconds
    longest: float
    measure: Measure

    def soonest(self, target: float, piloted: Sequence[tuple[Candidate, Sequence[Reached]]]) -> Planned:
        """The plan with the shortest training that is estimated to reach the target.

        Raises:
            VcycleError: if none is.
        """
        found = [self._for(target, candidate, reached) for candidate, reached in piloted if len(reached) > 1]
        plans = [each for each in found if each is not None]
        if plans:
            return min(plans, key=lambda each: each.seconds)
        best = max((r.value for _, reached in piloted for r in reached), default=math.nan)
        raise VcycleError(
            f"--target {self.measure.text(target)}: by the pilot, whose best value is {self.measure.text(best)}, no "
            f"plan of up to {self.longest:g} lengths of the baseline reaches it: give a longer pilot (--pilot 0.5), a "
            "longer training (training.epochs) or a lower target"
        )

    def _for(self, target: float, candidate: Candidate, reached: Sequence[Reached]) -> Planned | None:
        wait = time_to(target, reached, share=self.measure.unit == "%")
        one = candidate.build(self.recipe, self.samples, 1.0)
        if wait is None or wait > self.longest * seconds_of(one, self.seconds):
            return None
        found = fitted(candidate, self.recipe, self.samples, self.seconds, wait, self.longest)
        if found is None or refusal(found):
            return shortest(candidate, self.recipe, self.samples, self.seconds, one)
        return found


def _too_short(budget: float, wanted: Wanted, least: Sequence[Planned | None]) -> VcycleError:
    possible = [each for each in least if each is not None]
    given = f"{budget:.3g} s" if wanted.budget is None else f"--hours {budget / 3600:.3g} ({budget:.3g} s)"
    if not possible:
        return VcycleError(f"{given}: no plan of the recipe keeps to the bounds at any length (docs/plans.md)")
    first = min(possible, key=lambda each: each.seconds)
    hours = math.ceil(first.seconds / 36 * 1.01) / 100 if first.seconds > 360 else first.seconds / 3600 * 1.01
    return VcycleError(
        f"{given}: no plan is long enough in that time; the shortest, {first.candidate.label} of {first.length:g} "
        f"lengths, takes {first.seconds:.3g} s: --hours {hours:.3g} or more is accepted"
    )


def _timed(experiment: Experiment, plans: Sequence[Plan], effort: Effort, out: Path) -> StepTimes:
    """The time of a step at each batch shape, through the recipe's own loader; measured once per folder and machine."""
    recipe, say = experiment.recipe, experiment.on_message

    def measure() -> StepTimes:
        return time_steps(
            workload_of(recipe, len(experiment.classes)),
            plans,
            experiment.dataset("train"),
            effort=effort,
            progress=experiment.on_progress,
            on_message=say,
        )

    return kept(out / "steps.json", steps_key(recipe, plans), measure, on_message=say)
