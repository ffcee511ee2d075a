"""Says what a proposed plan rests on: sentences, each with its number."""

from typing import TYPE_CHECKING

from vcycle.bench.auto.candidates import Planned, is_coarse, seconds_of
from vcycle.bench.auto.choose import BOUNDS, TELLING, standard_error
from vcycle.utils.units import duration

if TYPE_CHECKING:
    from vcycle.bench.auto.propose import Found

__all__ = ["reasons_of"]

_FILLED = 0.95
"""Share of the budget from which on it counts as used."""


def reasons_of(found: "Found") -> list[str]:
    """The reasons for a proposal, most telling first."""
    return [*_length(found), *_pilot(found), *_steps(found), *_bounds(found)]


def _length(found: "Found") -> list[str]:
    chosen, constant = found.chosen, seconds_of(found.constant, found.seconds)
    work = found.constant.work() / chosen.plan.work()
    times = constant / chosen.seconds
    ratio = (
        f": {times:.2f}× faster, where the work alone says {work:.2f}×"
        if times >= 1
        else f", so the plan takes {1 / times:.2f}× the time, where the work alone says {1 / work:.2f}×"
    )
    said = [
        f"Time: {chosen.candidate.label} of {chosen.length:g} lengths takes {duration(chosen.seconds)} "
        f"({found.clock} time of {len(chosen.plan):,} measured steps); the constant shape takes {duration(constant)}"
        f"{ratio}."
    ]
    target = found.wanted.target
    if target is None and chosen.is_longest and chosen.seconds < _FILLED * found.budget:
        said.append(
            f"Length: {duration(chosen.seconds)} of the {duration(found.budget)} are used, because {chosen.length:g} "
            "lengths are the longest that is proposed; training.epochs or training.steps make a length longer."
        )
    if target is not None:
        two = found.reached[chosen.candidate.label]
        points = " and ".join(f"{found.measure.text(r.value)} after {duration(r.seconds)}" for r in two)
        said.append(
            f"Target: an estimate. The pilot had {points}; extended, that is {found.measure.text(target)} after "
            f"{duration(chosen.seconds)} or sooner, on data like that held out."
        )
    return said


def _pilot(found: "Found") -> list[str]:
    if not found.reached:
        return [
            f"Pilot: none. The plan has the highest geometric mean of updates ({len(found.chosen.plan):,}) and samples "
            f"({found.chosen.plan.samples:,}) in the same time, which is a guess at its accuracy."
        ]
    show, rungs = found.measure.text, max(map(len, found.reached.values()))
    final = {label: each[-1] for label, each in found.reached.items() if len(each) == rungs}
    label = found.chosen.candidate.label
    if label not in final:
        return []
    others = sorted((r.value, name) for name, r in final.items() if name != label)
    mine = final[label]
    said = f"Pilot: {label} had {show(mine.value)} after {duration(mine.seconds)} and {mine.steps:,} steps"
    if others:
        value, name = others[-1]
        said += f"; {'the next' if value <= mine.value else 'the best'}, {name}, had {show(value)}"
    said += f" (one seed, {found.held_out} training items held out"
    if found.measure.is_share and 0 < mine.value < 1:
        error = found.measure.scale * standard_error(
            mine.value, others[-1][0] if others else mine.value, found.held_out
        )
        said += f"; the standard error of the difference is {error:.1f} {found.measure.points}"
    said += ")"
    if found.wanted.target is None and others and others[-1][0] > mine.value:
        said += f". That is not {TELLING:g} standard errors more, so the recipe's own plan stays"
    return [said + "."]


def _steps(found: "Found") -> list[str]:
    """How far the recipe's own coarse steps are from saving their work."""
    base = found.own.baseline_shape
    coarse = [shape for shape in found.own.shapes if is_coarse(shape, base)]
    if not coarse:
        return []
    full = found.seconds[base]
    worst = min(coarse, key=lambda shape: shape.work / base.work / (found.seconds[shape] / full))
    return [
        f"Steps: in the recipe's own plan {worst} takes {1e3 * found.seconds[worst]:.1f} ms for "
        f"{worst.work / base.work:.2f} of the work of {base}, which takes {1e3 * full:.1f} ms: "
        f"{found.seconds[worst] / full:.2f} of the time."
    ]


def _bounds(found: "Found") -> list[str]:
    out = [(planned, reason) for planned, reason in found.planned if reason is not None]
    names = {bound.name: bound for bound in BOUNDS}
    said = []
    for name, bound in names.items():
        those: list[tuple[Planned, str]] = [entry for entry in out if entry[1].startswith(name)]
        if those:
            example = those[0]
            said.append(
                f"Bounds: {len(those)} plans fall below {bound.least:g} of {name}, such as "
                f"{example[0].candidate.label} ({example[1]}): {bound.evidence}."
            )
    return said
