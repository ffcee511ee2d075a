"""Schedules for video super-resolution (Lin et al. 2022): spatial and temporal cycles, LR restarts."""

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from vcycle.errors import PlanError, shown
from vcycle.plan.arguments import check_kind, check_number, check_numbers, check_positive
from vcycle.plan.baseline import Baseline
from vcycle.plan.build import Segment, lay_out, scaled_lr, whole
from vcycle.plan.grids import check_multiples, nearest_multiple, work_note
from vcycle.plan.rates import CosineDecay, CosineRate, FactorWarmup
from vcycle.plan.schedule import Plan
from vcycle.plan.shape import BatchShape, ShapeConstraints

__all__ = ["NESTINGS", "large_minibatch", "superresolution"]

NESTINGS = ("hierarchical", "synchronous", "spatial", "temporal")


def superresolution(
    baseline: Baseline,
    *,
    nesting: str = "hierarchical",
    sizes: Sequence[int] | None = None,
    frames: Sequence[int] | None = None,
    mirrored: bool = False,
    batch: str = "constant",
    lr_scaling: str = "sqrt",
    stage_lrs: Sequence[float] | None = None,
    epoch_factor: float = 1.0,
    frames_multiple: int = 1,
    size_multiple: int = 1,
) -> Plan:
    """Coarse-to-fine crops and clips, with a warm restart of the LR at every stage.

    All stages have the same number of samples and, with a constant batch, the same number of steps. Every stage starts
    at the full LR. Each stage but the last follows the start of a cosine over the *whole* training's length; the last
    decays over its own length (equation 1; half-open stages, with the π that the printed formula lacks).

    The defaults are those of the paper: 32 and 64 pixels, 7, 11 and 15 frames ("Implementation Details"), and for
    `synchronous` the first row of table 6a, 7 frames of 32 pixels and then 15 of 64.

    Args:
        baseline: The recipe: `size` in low-resolution pixels, `frames` of a clip, a cosine decay.
        nesting: `hierarchical` (a temporal cycle in each spatial stage), `synchronous` (both grow at the same step),
            only `spatial`, or only `temporal`.
        sizes: Spatial stages; by default `max(32, S/2), S`. `synchronous` needs as many sizes as frames: if only one of
            the lists is given, the other goes from half to all in even steps, with the same floors, rounded down.
        frames: Temporal stages; by default `max(6, T/2), 3T/4, T`, rounded down; for `synchronous` `max(6, T/2), T`.
        mirrored: Clips are raw frames followed by their mirror image (Vimeo-90K: 7 raw, 14 frames), so lengths are
            even, rounded down: 6, 10, 14.
        batch: `constant` as in the paper, or `scaled`: the batch grows as the shape shrinks so that `b·t·h·w` stays
            constant; a step then costs the same, and a stage has fewer steps. Samples stay the same, also those of
            warmup and freezes.
        lr_scaling: How the LR scales with a larger batch: `sqrt`, which suits Adam, `linear` or `none`.
        stage_lrs: Peak LR of each stage for the baseline's batch, instead of the baseline's LR (EDVR-M starts at 2e-4).
        epoch_factor: Samples of the plan, relative to the baseline. Warmup and freezes shrink with it but do not grow.
        frames_multiple: Round the default `frames` to the nearest multiple; those that you list must be multiples.
        size_multiple: The same of the `sizes`.

    Raises:
        PlanError: if the options contradict each other or the baseline, or an argument is of the wrong type.
    """
    check_kind("baseline", baseline, Baseline, "vcycle.superresolution(baseline)")
    if nesting not in NESTINGS:
        raise PlanError(f"nesting {shown(nesting)} is unknown: {', '.join(NESTINGS)}")
    if batch not in ("constant", "scaled"):
        raise PlanError(f"batch {shown(batch)} is unknown: constant or scaled")
    if not isinstance(baseline.decay, CosineDecay):
        raise PlanError(
            f"a super-resolution schedule restarts a cosine; the baseline's decay is {shown(baseline.decay)}"
        )
    sizes = None if sizes is None else check_numbers("sizes", sizes, whole=True)
    frames = None if frames is None else check_numbers("frames", frames, whole=True)
    _check_lists(nesting, sizes, frames)
    check_multiples(baseline, frames_multiple=frames_multiple, size_multiple=size_multiple)
    frames_multiple = math.lcm(frames_multiple, 2 if mirrored and frames is None else 1)
    notes: dict[str, None] = {}
    if sizes is None:
        sides = _rounded(_default_sizes(baseline.size, _parts(nesting, frames, 2)), size_multiple, "size", notes)
    else:
        sides = [*sizes]
    if frames is None:
        default = _default_frames(baseline.frames, _parts(nesting, sizes, 3), mirrored)
        lengths = _rounded(default, frames_multiple, "frames", notes)
    else:
        lengths = [*frames]
    shapes = _shapes(nesting, baseline, sides, lengths, mirrored)
    peaks = [baseline.peak_lr] * len(shapes) if stage_lrs is None else check_numbers("stage_lrs", stage_lrs)
    if len(peaks) != len(shapes):
        raise PlanError(f"{len(peaks)} stage LRs for {len(shapes)} stages: one each is needed")
    if not all(baseline.decay.floor < peak < math.inf for peak in peaks):
        raise PlanError(f"stage LRs {shown(peaks)} must be above the cosine's floor {baseline.decay.floor:g}")
    factor = check_positive("epoch_factor", epoch_factor)
    steps = factor * Fraction(baseline.length) * baseline.unit / len(shapes)
    segments = []
    for number, ((t, s), peak) in enumerate(zip(shapes, peaks, strict=True), 1):
        shape = _batch_shape(baseline, t, s, batch)
        grown = Fraction(shape.batch, baseline.batch)
        gain = scaled_lr(grown, lr_scaling)
        if batch == "scaled" and (note := work_note(baseline, shape, Fraction(baseline.batch))) is not None:
            notes[note] = None
        rate = CosineRate(peak=peak, floor=baseline.decay.floor, end=1.0 if number == len(shapes) else 1 / len(shapes))
        segments.append(
            Segment(
                name=f"{t} frames, {s} px",
                steps=steps / grown,
                pattern=(shape,),
                rate=whole(rate.scaled(gain)),
                lr_factor=gain,
            )
        )
    name = nesting if batch == "constant" else f"{nesting}+{batch}"
    share = min(Fraction(1), factor)
    plan = lay_out(
        name,
        baseline.stretched(share),
        segments,
        warmup_samples=baseline.warmup_samples() * share,
        mirrored=mirrored,
        notes=tuple(notes),
    )
    plan.require(ShapeConstraints(frames_multiple=frames_multiple, size_multiple=size_multiple))
    return plan


def large_minibatch(
    baseline: Baseline,
    factor: int,
    *,
    scale_lr: bool = True,
    shorten: bool = True,
    warmup: FactorWarmup | None = FactorWarmup(steps=5000),  # noqa: B008 -- immutable
) -> Baseline:
    """The baseline with `factor` times the batch, `factor` times the LR, and `factor` times fewer steps.

    Lin et al. 2022, "Large Minibatch Training"; LR scaling, shortening and warmup can be left out, as in table 4.

    Args:
        baseline: The recipe, with its length in steps.
        factor: Factor by which the minibatch grows.
        scale_lr: Scale the LR with it.
        shorten: Reduce the steps with it, so that the samples stay the same.
        warmup: The warmup that a large LR needs; None for none.

    Raises:
        PlanError: if an argument is of the wrong type, the length is in epochs, or the steps do not divide by the
            factor.
    """
    check_kind("baseline", baseline, Baseline, "vcycle.large_minibatch(baseline, factor)")
    if check_number("minibatch factor", factor, whole=True) < 1:
        raise PlanError(f"minibatch factor {factor} is below 1")
    if baseline.steps is None:
        raise PlanError("a large minibatch divides the baseline's steps; this baseline's length is in epochs")
    if shorten and baseline.steps % factor:
        raise PlanError(f"{baseline.steps:,} steps do not divide by the minibatch factor {factor}")
    return replace(
        baseline,
        batch=baseline.batch * factor,
        lr=baseline.peak_lr * (factor if scale_lr else 1),
        lr_batch=None,
        steps=baseline.steps // factor if shorten else baseline.steps,
        warmup=warmup,
    )


def _check_lists(nesting: str, sizes: Sequence[int] | None, frames: Sequence[int] | None) -> None:
    for name, values, without in (("sizes", sizes, "temporal"), ("frames", frames, "spatial")):
        if values is not None and nesting == without:
            raise PlanError(f"{name} {shown([*values])} have no use in {nesting} nesting: leave them out")
        if values is not None and not values:
            raise PlanError(f"{name} are empty: at least the baseline's is needed")


def _shapes(
    nesting: str, baseline: Baseline, sides: list[int], lengths: list[int], mirrored: bool
) -> list[tuple[int, int]]:
    """Stages as (frames, size)."""
    if mirrored and baseline.frames % 2:
        raise PlanError(f"a mirrored clip has an even number of frames; the baseline's has {baseline.frames}")
    if mirrored and any(t % 2 for t in lengths):
        raise PlanError(f"frames {lengths}: mirrored clips have even numbers of frames")
    _check_ascending(sides, baseline.size, "sizes")
    _check_ascending(lengths, baseline.frames, "frames")
    if nesting == "synchronous":
        if len(sides) != len(lengths):
            raise PlanError(
                f"sizes {sides} and frames {lengths}: synchronous stages change both at the same step, so as many of "
                "each are needed"
            )
        return list(dict.fromkeys(zip(lengths, sides, strict=True)))
    distinct_sides, distinct_lengths = dict.fromkeys(sides), dict.fromkeys(lengths)
    if nesting == "spatial":
        return [(lengths[-1], s) for s in distinct_sides]
    if nesting == "temporal":
        return [(t, sides[-1]) for t in distinct_lengths]
    return [(t, s) for s in distinct_sides for t in distinct_lengths]


def _parts(nesting: str, listed: Sequence[int] | None, default: int) -> list[Fraction]:
    """The default stages of an axis, even parts from half to all; synchronous: as many as are listed of the other."""
    stages = default if nesting != "synchronous" else 2 if listed is None else len(listed)
    return [1 - Fraction(stages - 1 - k, 2 * max(1, stages - 1)) for k in range(stages)]


def _default_sizes(full: int, parts: Sequence[Fraction]) -> list[int]:
    return [min(full, max(32, math.floor(full * part))) for part in parts]


def _default_frames(full: int, parts: Sequence[Fraction], mirrored: bool) -> list[int]:
    step = 2 if mirrored else 1
    # The paper's floor of 6 frames must not exceed the clip; half of a mirrored clip of 14 is 7, rounded down to 6.
    return [min(full, max(6, math.floor(full * part / step) * step)) for part in parts]


def _rounded(values: Sequence[int], multiple: int, name: str, notes: dict[str, None]) -> list[int]:
    """The nearest multiples; a note names those that change. Half a multiple or less stays, and is refused later."""
    found = [nearest_multiple(value, multiple) or value for value in values]
    for before, after in zip(values, found, strict=True):
        if before != after:
            notes[f"{name} {before} is rounded to {after}, a multiple of {multiple}"] = None
    return found


def _check_ascending(values: Sequence[int], full: int, name: str) -> None:
    if list(values) != sorted(values) or values[0] < 1 or values[-1] != full:
        raise PlanError(f"{name} {shown([*values])} must increase from at least 1 to the baseline's {full}")


def _batch_shape(baseline: Baseline, frames: int, size: int, batch: str) -> BatchShape:
    clips = baseline.batch
    if batch == "scaled":
        clips = clips * baseline.frames * baseline.size**2 // (frames * size**2)
    return BatchShape(frames=frames, size=size, batch=clips, bn_batch=baseline.group)
