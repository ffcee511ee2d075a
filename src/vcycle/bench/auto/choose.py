"""Which plans a time budget allows, which of them are worth a pilot, and what a pilot says of the time to a target."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from vcycle.bench.auto.candidates import LONGEST, Candidate, Planned, Seconds, fitted, seconds_of
from vcycle.config.recipe import RecipeBase
from vcycle.plan import Plan

__all__ = [
    "BOUNDS",
    "TELLING",
    "Bound",
    "Reached",
    "preferred",
    "refusal",
    "shortest",
    "shortlist",
    "standard_error",
    "time_to",
]


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A bound that a plan must keep to, and the measurements that it rests on."""

    name: str
    least: float
    evidence: str

    def of(self, planned: Planned) -> float:
        """What the plan has: updates and samples relative to the baseline, or the share of its steps."""
        plan, baseline = planned.plan, planned.plan.baseline
        if self.name == "updates":
            return len(plan) / baseline.total_steps
        if self.name == "samples":
            return plan.samples / (baseline.total_steps * baseline.batch)
        return planned.full_share


BOUNDS = (
    Bound(
        name="updates",
        least=0.25,
        evidence="on gestures a cascade with 0.27 of the baseline's (373 of 1,400) was as accurate as the constant "
        "shape, one with 0.13 (187 of 1,400) lost 19 points",
    ),
    Bound(
        name="samples",
        least=0.75,
        evidence="on gestures half of the baseline's samples lost 19 points as a cascade and 40 as the constant shape, "
        "on mhad_depth 0.60 and 0.71 of them lost 7 and 5 to plans of the same time with 1.0; on fights 0.9 of them "
        "lost no more than seeds scatter",
    ),
    Bound(
        name="full-shape steps",
        least=0.125,
        evidence="the least with a published accuracy is 0.128, of long+short on Kinetics; cascades that were as "
        "accurate as the constant shape had 0.20 to 0.40",
    ),
)
"""What a proposed plan must not fall below: updates and samples in those of the baseline, and a share of the steps."""

_ROUNDING = 0.02
"""How far whole steps may fall below a bound."""


def refusal(planned: Planned) -> str | None:
    """The first bound that a plan falls below, with its value; None if it keeps to all."""
    for bound in BOUNDS:
        if (has := bound.of(planned)) < bound.least * (1 - _ROUNDING):
            return f"{bound.name} {has:.2f}, below {bound.least:g}"
    return None


def shortlist(planned: Iterable[Planned], most: int) -> list[Planned]:
    """The plans that are worth a pilot, best score first.

    One of each family, which differ in their weights alone, comes before a second of any; the recipe's own plan is
    always among them.

    Args:
        planned: Plans that fit the same budget and keep to the bounds.
        most: Their largest number.
    """
    ranked = sorted(planned, key=lambda each: -each.score)
    seen: dict[object, int] = {}
    order = []
    for each in ranked:
        order.append((seen.get(each.candidate.family, 0), -each.score, each))
        seen[each.candidate.family] = seen.get(each.candidate.family, 0) + 1
    chosen = [each for *_, each in sorted(order, key=lambda entry: entry[:2])][:most]
    own = next((each for each in ranked if each.candidate.own), None)
    if own is not None and own not in chosen:
        chosen[-1:] = [own]
    return sorted(chosen, key=lambda each: -each.score)


@dataclass(frozen=True, kw_only=True)
class Reached:
    """The value on held-out data after a training of some seconds, by prediction."""

    seconds: float
    value: float
    steps: int
    """Of the training."""
    cpu_seconds: float
    """Processor time that it took."""


TELLING = 2.0
"""Standard errors by which a plan must beat the recipe's own in a pilot to be proposed in its place. Short trainings
prefer other plans than long ones do: on two of three sets a lead of 1.2 and 1.8 turned into a loss in full length."""


def preferred(
    tried: Sequence[Planned], reached: Mapping[str, Sequence[Reached]], *, held_out: int, is_share: bool
) -> Planned:
    """The plan that a pilot speaks for: its best, or the recipe's own if the best does not beat that significantly.

    Args:
        tried: The plans.
        reached: What each reached in each rung, by label; empty without a pilot.
        held_out: Items that judged the pilot.
        is_share: Whether the value is the share of these items that are right. Of another nothing is known of its
            error, and the best is chosen.
    """

    def rank(planned: Planned) -> tuple[int, float, float]:
        rungs = reached.get(planned.candidate.label, ())
        last = rungs[-1].value if rungs else -math.inf
        return len(rungs), -math.inf if math.isnan(last) else last, planned.score

    best = max(tried, key=rank)
    own = next((each for each in tried if each.candidate.own), None)
    if own is None or not is_share or not reached or rank(own)[0] < rank(best)[0]:
        return best
    theirs, ours = rank(best)[1], rank(own)[1]
    if not math.isfinite(ours) or theirs - ours > TELLING * standard_error(theirs, ours, held_out):
        return best
    return own


def standard_error(one: float, other: float, items: int) -> float:
    """The standard error of the difference of two shares of as many items, as if they were drawn independently."""
    return math.sqrt((one * (1 - one) + other * (1 - other)) / items)


def time_to(target: float, reached: Sequence[Reached], *, share: bool) -> float | None:
    """Estimate the seconds until a target, from trainings of two or more lengths; None if they do not lead there.

    The error falls as a power of the time if the value is a share, and the value grows with its logarithm otherwise,
    through the shortest and the longest training.

    Args:
        target: The value to reach.
        reached: What the trainings reached.
        share: Whether the value is a share, at most 1.
    """
    first, last = min(reached, key=lambda r: r.seconds), max(reached, key=lambda r: r.seconds)
    if first.value >= target:
        return first.seconds
    low, high, wanted = (_height(value, share=share) for value in (first.value, last.value, target))
    if last.seconds == first.seconds or high <= low:
        return None
    slope = (high - low) / math.log(last.seconds / first.seconds)
    exponent = (wanted - low) / slope
    return first.seconds * math.exp(exponent) if exponent < 50 else None


def _height(value: float, *, share: bool) -> float:
    return -math.log(max(1 - value, 1e-3)) if share else value


def shortest(candidate: Candidate, given: RecipeBase, samples: int, seconds: Seconds, one: Plan) -> Planned | None:
    """The shortest plan of a candidate that keeps to the bounds, or None if no length does.

    Args:
        candidate: The candidate.
        given: The recipe.
        samples: Length of the training set.
        seconds: Measured seconds of a step at each of its batch shapes.
        one: Its plan of one length.
    """
    unit = Planned(candidate=candidate, length=1.0, plan=one, seconds=seconds_of(one, seconds))
    grow = max(bound.least / bound.of(unit) for bound in BOUNDS[:2])
    if grow > LONGEST:
        return None
    found = fitted(candidate, given, samples, seconds, unit.seconds * grow * (1 + _ROUNDING / 2))
    return None if found is None or refusal(found) else found
