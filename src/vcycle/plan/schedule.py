"""The plan: a sequence of stages that gives the shape, batch and LR of any step, in any order."""

import hashlib
import json
import operator
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex, get_args, overload

from vcycle.errors import PlanError, shown
from vcycle.plan import rates, serial
from vcycle.plan.arguments import check_cost, check_each, check_index, check_kind, check_name, check_number
from vcycle.plan.baseline import Baseline
from vcycle.plan.rates import FactorWarmup, RampWarmup, Rate
from vcycle.plan.shape import FULL, TOKEN_DROPPERS, BatchShape, Shape, ShapeConstraints

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Plan", "Saving", "Stage", "Step"]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Consecutive steps with one base shape and one LR schedule.

    Step `i` of the *whole* training uses `pattern[i % len(pattern)]`: the short cycle runs over global
    steps (Wu et al. 2020, section 3.2). The base shape comes last in the pattern.
    """

    name: str
    steps: int
    pattern: tuple[BatchShape, ...]
    rate: Rate
    lr_factor: float = 1.0
    """The batch factor, which `rate` already includes."""

    def __post_init__(self) -> None:
        check_name("stage name", self.name)
        check_number("stage steps", self.steps, whole=True)
        check_number("stage lr_factor", self.lr_factor)
        object.__setattr__(self, "pattern", check_each("stage pattern", self.pattern, BatchShape))
        rate: Any = self.rate
        if not isinstance(rate, Rate):
            kinds = ", ".join(f"{kind.__name__}(...)" for kind in get_args(Rate))
            raise PlanError(f"stage rate is {shown(rate)}: one of {kinds} is needed")
        if self.steps < 1:
            raise PlanError(f"stage {self.name!r} has {self.steps} steps: at least 1 is needed")
        if not self.pattern:
            raise PlanError(f"stage {self.name!r} has no batch shape")

    @property
    def base(self) -> BatchShape:
        """The stage's base shape."""
        return self.pattern[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One optimizer update: clip shape, batch and learning rate."""

    index: int
    """Global step, 0-based."""
    stage: int
    """Index of the stage."""
    shape: Shape
    """Shape of each clip."""
    batch: int
    """Clips in the global batch."""
    lr: float
    """Learning rate of parameters without a role."""
    bn_batch: int
    """Clips in a BatchNorm group."""
    first_sample: int
    """Position of the batch's first sample in the sample stream."""
    role_factors: tuple[tuple[str, float], ...] = ()
    """LR factor of each role at this step."""
    tokens: float = 1.0
    """Share of a transformer's tokens that a clip keeps; the others are dropped."""

    @property
    def cell(self) -> BatchShape:
        """The batch shape."""
        return BatchShape(
            frames=self.shape.frames,
            size=self.shape.size,
            batch=self.batch,
            bn_batch=self.bn_batch,
            tokens=self.tokens,
        )

    def at(self, cell: BatchShape) -> "Step":
        """The step at another batch shape, to try it.

        Raises:
            PlanError: if it is none.
        """
        check_kind("cell", cell, BatchShape, "step.at(cell)")
        return replace(self, shape=cell.shape, batch=cell.batch, bn_batch=cell.bn_batch, tokens=cell.tokens)

    def lr_of(self, role: str | None) -> float:
        """The LR of a parameter role; 0 while the role is frozen.

        Raises:
            PlanError: if the plan has no such role.
        """
        if role is None:
            return self.lr
        factors = dict(self.role_factors)
        if not isinstance(role, str) or role not in factors:
            raise PlanError(f"parameter role {shown(role)} is not in the plan: {sorted(factors) or 'it has none'}")
        return self.lr * factors[role]

    @property
    def samples(self) -> range:
        """The batch's positions in the sample stream."""
        return range(self.first_sample, self.first_sample + self.batch)


class Saving(NamedTuple):
    """Baseline divided by plan, in steps and in work: 3.3 means 3.3× fewer steps or 3.3× less work."""

    steps: float
    work: float


class _Part(NamedTuple):
    """A stage with its first step, its first sample, and the cumulative batches of its pattern."""

    stage: Stage
    first_step: int
    first_sample: int
    running: tuple[int, ...]

    def samples(self, steps: int) -> int:
        """Samples in the stage's first `steps` steps."""
        rounds, rest = divmod(steps, len(self.running))
        return rounds * self.running[-1] + (self.running[rest - 1] if rest else 0)

    def counts(self, steps: int) -> list[tuple[BatchShape, int]]:
        """Number of the stage's first `steps` steps that use each entry of its pattern."""
        pattern = self.stage.pattern
        size = len(pattern)
        waits = ((i - self.first_step) % size for i in range(size))
        return [(cell, -((wait - steps) // size)) for cell, wait in zip(pattern, waits, strict=True)]


@dataclass(frozen=True, kw_only=True)
class Plan(Sequence[Step]):
    """The whole training as a sequence of steps; `plan[k]` needs no history and takes O(log stages).

    Plans compare and serialise by value: see `to_json`, `from_json` and `fingerprint`.
    """

    name: str
    baseline: Baseline
    stages: tuple[Stage, ...]
    warmup_samples: float = 0.0
    """Length of a ramp warmup in samples of this plan."""
    mirrored: bool = False
    """Whether a clip's frames are raw frames followed by their mirror image (super-resolution, Vimeo)."""
    notes: tuple[str, ...] = field(default=(), compare=False, metadata={serial.SAVED: False})
    """What building it rounded, for the user. Not part of its value: neither compared nor saved."""

    def __post_init__(self) -> None:
        check_name("plan name", self.name)
        check_kind("baseline", self.baseline, Baseline, "vcycle.Plan(name=..., baseline=..., stages=...)")
        object.__setattr__(self, "stages", check_each("plan stages", self.stages, Stage))
        check_number("plan warmup_samples", self.warmup_samples)
        if not isinstance(self.mirrored, bool):
            raise PlanError(f"plan mirrored is {shown(self.mirrored)}: True or False is needed")
        object.__setattr__(self, "notes", check_each("plan notes", self.notes, str))
        if not self.stages:
            raise PlanError(f"plan {self.name!r} has no stages")
        if self._steps > sys.maxsize:
            raise PlanError(f"plan {self.name!r} is longer than {sys.maxsize:,} steps, the most that can be counted")
        if self.warmup_samples >= self.samples:
            raise PlanError(
                f"plan {self.name!r}: the warm-up of {self.warmup_samples:,.0f} samples does not end within "
                f"the plan's {self.samples:,}"
            )
        warmup = self.baseline.warmup
        if isinstance(warmup, FactorWarmup) and warmup.steps * self.baseline.batch >= self.samples:
            raise PlanError(
                f"plan {self.name!r}: the warm-up of {warmup.steps:,} steps does not end within "
                f"the plan's {self.samples / self.baseline.batch:,.0f} of {self.baseline.batch} clips"
            )

    # Lookup ------------------------------------------------------------------------------------------

    @cached_property
    def _parts(self) -> tuple[_Part, ...]:
        parts, step, sample = [], 0, 0
        for stage in self.stages:
            shift = step % len(stage.pattern)
            batches = [c.batch for c in stage.pattern[shift:] + stage.pattern[:shift]]
            part = _Part(stage, step, sample, tuple(accumulate(batches)))
            parts.append(part)
            step += stage.steps
            sample += part.samples(stage.steps)
        return tuple(parts)

    @cached_property
    def _first_steps(self) -> list[int]:
        return [p.first_step for p in self._parts]

    @cached_property
    def _first_samples(self) -> list[int]:
        return [p.first_sample for p in self._parts]

    @cached_property
    def _steps(self) -> int:
        return sum(s.steps for s in self.stages)

    def __len__(self) -> int:
        return self._steps

    @cached_property
    def samples(self) -> int:
        """Samples seen in the whole training."""
        last = self._parts[-1]
        return last.first_sample + last.samples(last.stage.steps)

    @property
    def epochs(self) -> float:
        """Passes over the training set in the whole training."""
        return self.samples / self.baseline.clips

    @overload
    def __getitem__(self, index: SupportsIndex) -> Step: ...

    @overload
    def __getitem__(self, index: slice) -> list[Step]: ...

    def __getitem__(self, index: SupportsIndex | slice) -> Step | list[Step]:
        """The step `index`, counted from the end if negative; for a slice, a list of steps.

        Raises:
            IndexError: past the end of the plan.
            PlanError: if it is no whole number.
        """
        steps = len(self)
        if isinstance(index, slice):
            return [self._step(k) for k in range(*_bounds(index).indices(steps))]
        if type(index) is not int:
            index = _whole("step", index)
        if not -steps <= index < steps:
            raise IndexError(f"step {index} of a plan of {steps} steps")
        return self._step(index % steps)

    def _step(self, index: int) -> Step:
        number = bisect_right(self._first_steps, index) - 1
        part = self._parts[number]
        cell = part.stage.pattern[index % len(part.stage.pattern)]
        first_sample = part.first_sample + part.samples(index - part.first_step)
        roles = sorted(self.baseline.roles.items())
        return Step(
            index=index,
            stage=number,
            shape=cell.shape,
            batch=cell.batch,
            lr=self._lr(part, index, first_sample),
            bn_batch=cell.bn_batch,
            first_sample=first_sample,
            role_factors=tuple((name, role.at(first_sample / self.baseline.batch)) for name, role in roles),
            tokens=cell.tokens,
        )

    def __iter__(self) -> Iterator[Step]:
        return self.iterate()

    def iterate(self, start: int = 0) -> Iterator[Step]:
        """The steps from `start` on; none if `start` is the plan's length.

        Raises:
            IndexError: if `start` is negative or past the end.
            PlanError: if it is no whole number.
        """
        check_index("start", start)
        if not 0 <= start <= len(self):
            raise IndexError(f"start {start} in a plan of {len(self)} steps")
        return (self[i] for i in range(start, len(self)))

    def samples_before(self, step: int) -> int:
        """Samples seen before `step`; all samples for `len(plan)`."""
        return self.samples if step == len(self) else self[step].first_sample

    def epochs_before(self, step: int) -> float:
        """Passes over the training set before `step`."""
        return self.samples_before(step) / self.baseline.clips

    # Learning rate -----------------------------------------------------------------------------------

    def _law(self, part: _Part, index: int) -> float:
        """The LR of the stage's schedule, at its fraction of the stage's samples."""
        done = part.samples(index - part.first_step)
        return part.stage.rate.at(done / part.samples(part.stage.steps))

    def _lr(self, part: _Part, index: int, first_sample: int) -> float:
        warmup = self.baseline.warmup
        if isinstance(warmup, FactorWarmup):
            return warmup.at(first_sample / self.baseline.batch) * self._law(part, index)
        if isinstance(warmup, RampWarmup) and first_sample < self.warmup_samples:
            start = self.baseline.start_lr
            return start + (self._ramp_end - start) * first_sample / self.warmup_samples
        return self._law(part, index)

    @cached_property
    def _ramp_end(self) -> float:
        """The LR at the end of the ramp: that of the first step that starts after it."""
        part = self._parts[bisect_right(self._first_samples, self.warmup_samples) - 1]
        low, high = 0, part.stage.steps
        while low < high:
            middle = (low + high) // 2
            if part.first_sample + part.samples(middle) < self.warmup_samples:
                low = middle + 1
            else:
                high = middle
        index = part.first_step + low
        after = self._parts[bisect_right(self._first_steps, index) - 1]
        return self._law(after, min(index, len(self) - 1))

    # Shapes and work ---------------------------------------------------------------------------------

    @cached_property
    def shapes(self) -> tuple[BatchShape, ...]:
        """The distinct batch shapes, in order of their first use."""
        return tuple(dict.fromkeys(cell for _, cell in self._first_uses()))

    @property
    def drops_tokens(self) -> bool:
        """Whether any step keeps only a share of a transformer's tokens."""
        return any(cell.tokens < 1 for cell in self.shapes)

    def _first_uses(self) -> list[tuple[int, BatchShape]]:
        """Each stage's batch shapes with the first step that uses them, in order."""
        return [
            (step, part.stage.pattern[step % len(part.stage.pattern)])
            for part in self._parts
            for step in range(part.first_step, part.first_step + min(len(part.running), part.stage.steps))
        ]

    @cached_property
    def counts(self) -> Mapping[BatchShape, int]:
        """Number of steps at each batch shape."""
        return self.counts_before(len(self))

    def counts_before(self, step: int) -> Mapping[BatchShape, int]:
        """Number of steps before `step` at each batch shape of the plan.

        Raises:
            PlanError: if it is no whole number.
        """
        step = _whole("step", step)
        totals = dict.fromkeys(self.shapes, 0)
        for part in self._parts:
            for cell, count in part.counts(min(max(0, step - part.first_step), part.stage.steps)):
                if count:
                    totals[cell] += count
        return totals

    def work(self, cost: Callable[[BatchShape], float] | None = None) -> float:
        """The work of the whole plan, in steps of the baseline.

        Args:
            cost: Work of one step at a batch shape, in any unit (FLOPs, seconds); voxels times tokens if None.
        """
        check_cost(cost)
        cost = cost or (lambda cell: cell.work)
        total = sum(count * cost(cell) for cell, count in self.counts.items())
        return total / cost(self.baseline_shape)

    @property
    def baseline_shape(self) -> BatchShape:
        """The batch shape of the baseline."""
        return self.baseline.at(FULL)

    def saving(self, cost: Callable[[BatchShape], float] | None = None) -> Saving:
        """Baseline divided by plan, in steps and in work; `cost` as in `work`."""
        steps = self.baseline.total_steps
        return Saving(steps=steps / len(self), work=steps / self.work(cost))

    def require(self, needs: ShapeConstraints, model: str | None = None) -> None:
        """Check every shape of the plan against the shape constraints of a model.

        Args:
            needs: The constraints.
            model: Its name, for the message.

        Raises:
            PlanError: naming the first shape that the model cannot take, with its stage and step.
        """
        check_kind("needs", needs, ShapeConstraints, "plan.require(constraints)")
        which = "the model" if model is None else f"model {model!r}"
        for step, cell in self._first_uses():
            if needs.all_tokens and cell.tokens < 1:
                raise PlanError(
                    f"plan {self.name!r}, stage {self.stages[self[step].stage].name!r}: {which} needs all tokens of a "
                    f"clip, but step {step:,} keeps {100 * cell.tokens:.3g} % of them; accepted: {TOKEN_DROPPERS}"
                )
            reason = needs.violation(cell.shape)
            if reason is not None:
                stage = self.stages[self[step].stage]
                full = self.baseline_shape.shape
                # Shapes are rounded to a model's multiples only where the full shape has them.
                also = f"; the full shape {full} is refused too: change it first" if needs.violation(full) else ""
                raise PlanError(
                    f"plan {self.name!r}, stage {stage.name!r}: {which} cannot take the shape "
                    f"{cell.shape} that comes at step {step:,}: {reason}{'' if cell.shape == full else also}"
                )

    # As data -----------------------------------------------------------------------------------------

    def to_json(self, *, indent: int | None = None) -> str:
        """The whole plan as JSON; `from_json` is the inverse.

        Raises:
            PlanError: if the indent is no whole number.
        """
        if indent is not None:
            check_number("indent", indent, whole=True)
        return json.dumps(serial.encode(self), indent=indent, sort_keys=True, ensure_ascii=False)

    @staticmethod
    def from_json(text: str) -> "Plan":
        """Read a plan from JSON.

        Raises:
            PlanError: if the text is not a plan.
        """
        try:
            plan = serial.decode(json.loads(text), _kinds())
        except PlanError:
            raise
        except (TypeError, ValueError, RecursionError) as error:
            raise PlanError(f"a plan is not valid JSON: {error}") from None
        if not isinstance(plan, Plan):
            raise PlanError(f"expected a plan, got {type(plan).__name__}")
        return plan

    @cached_property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that identify the plan, for example in a checkpoint."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:12]

    def __str__(self) -> str:
        """The stages as a table in plain text: `print(plan)`."""
        return self.table()

    def table(self, cost: Callable[[BatchShape], float] | None = None) -> str:
        """The stages as a table in plain text, with the savings below; `cost` as in `work`."""
        from vcycle.plan.show import plan_text

        return plan_text(self, cost)

    def rows(self) -> Iterator[dict[str, int | float | str]]:
        """Every step as a flat row, for a table of all steps: `pandas.DataFrame(plan.rows())`.

        The columns, in this order:

        - `step`: 0-based; `epoch`: passes over the training set before it; `stage`: the stage's name
        - `frames`, `height`, `width`: the shape of each clip; `tokens`, if the plan drops some: the share that is kept
        - `batch`: clips in the global batch; `bn_batch`: clips in a BatchNorm group
        - `lr`, then `lr_ROLE` for each parameter role
        - `first_sample`: the batch's place in the sample stream; `samples`: samples seen after the step
        """
        from vcycle.plan.show import plan_rows

        return plan_rows(self)

    def figure(self, cost: Callable[[BatchShape], float] | None = None) -> "Figure":
        """Shapes, batch and LR over samples as a figure (as Wu et al. 2020, figure 2); `cost` as in `work`."""
        from vcycle.plan.show import plan_figure

        return plan_figure(self, cost)


def _whole(name: str, value: Any) -> int:
    """A whole number of Python, NumPy or torch.

    Raises:
        PlanError: if it is none.
    """
    with suppress(TypeError):
        value = int(operator.index(value))
    check_index(name, value)
    return int(value)


def _bounds(given: slice) -> slice:
    """A slice whose start, stop and step are whole numbers or None."""
    named = (("start", given.start), ("stop", given.stop), ("step", given.step))
    return slice(*(None if value is None else _whole(f"{name} of a slice", value) for name, value in named))


def _kinds() -> dict[str, Callable[..., object]]:
    """The dataclasses in a plan, by name."""
    classes: tuple[Callable[..., object], ...] = (
        *(Plan, Stage, Baseline, BatchShape),
        *(rates.ConstantRate, rates.CosineRate, rates.CurveRate),
        *(rates.NoDecay, rates.CosineDecay, rates.StepDecay, rates.CurveDecay),
        *(rates.FactorWarmup, rates.RampWarmup, rates.Role),
    )
    return {kind.__name__: kind for kind in classes}
