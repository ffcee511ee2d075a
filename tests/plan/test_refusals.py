"""A plan that cannot be built or run is refused in one line that says which value, where, and why."""

import json
import re
import reprlib
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from vcycle.errors import PlanError
from vcycle.plan import (
    Baseline,
    BatchShape,
    ConstantRate,
    CosineDecay,
    CurveDecay,
    FactorWarmup,
    NoDecay,
    Plan,
    RampWarmup,
    Role,
    Scale,
    Shape,
    ShapeConstraints,
    Stage,
    StepDecay,
    cascade,
    constant,
    control,
    large_minibatch,
    multigrid,
    rank_slice,
    superresolution,
)

NAN, INF = float("nan"), float("inf")


def base(**changes: object) -> Baseline:
    return Baseline(batch=8, frames=16, size=64, clips=800, epochs=10, lr=0.1).with_(**changes)


def video(**changes: object) -> Baseline:
    plain = Baseline(batch=16, frames=15, size=64, clips=26_600, steps=6_000, lr=2e-4, decay=CosineDecay())
    return plain.with_(**changes)


def cell() -> BatchShape:
    return BatchShape(frames=16, size=64, batch=8, bn_batch=8)


def stage(**changes: object) -> Stage:
    given = {"name": "only", "steps": 5, "pattern": (cell(),), "rate": ConstantRate(lr=0.1)}
    return Stage(**given | changes)  # type: ignore[arg-type]


BASELINES: list[tuple[Callable[[], object], str]] = [
    (lambda: base(batch=0), "baseline batch is 0: at least 1 is needed"),
    (lambda: base(frames=-1), "baseline frames is -1: at least 1"),
    (lambda: base(size=0), "baseline size is 0"),
    (lambda: base(clips=0), "baseline clips is 0"),
    (lambda: base(bn_batch=0), "baseline bn_batch is 0"),
    (lambda: base(lr=0.0), "baseline lr is 0.0: a number above 0"),
    (lambda: base(lr="1e-3"), "baseline lr is '1e-3': a number is needed"),
    (lambda: base(batch=2.5), "baseline batch is 2.5: a whole number is needed"),
    (lambda: base(frames=True), "baseline frames is True: a whole number is needed"),
    (lambda: base(batch=None), "baseline batch is None: a whole number is needed"),
    (lambda: base(lr=None), "baseline lr is None: a number is needed"),
    (lambda: base(epochs="10"), "baseline epochs is '10': a number is needed"),
    (lambda: base(epochs=None, steps=2.5), "baseline steps is 2.5: a whole number is needed"),
    (lambda: base(decay=None), "baseline decay is None: NoDecay(), CosineDecay(), "),
    (lambda: base(decay="cosine"), "baseline decay is 'cosine': NoDecay(), CosineDecay(), "),
    (lambda: base(warmup=5), "baseline warmup is 5: RampWarmup(...), FactorWarmup(...) or None"),
    (lambda: base(lr=INF), "baseline lr is inf"),
    (lambda: base(lr=NAN), "baseline lr is nan"),
    (lambda: base(lr_batch=0), "baseline lr_batch is 0"),
    (lambda: base(steps=5), "baseline has epochs 10 and steps 5: exactly one of the two"),
    (lambda: base(epochs=None), "baseline has epochs None and steps None: exactly one of the two"),
    (lambda: base(epochs=0), "baseline length is 0 epochs: a number above 0"),
    (lambda: base(epochs=INF), "baseline length is inf epochs"),
    (lambda: base(epochs=NAN), "baseline length is nan epochs"),
    (lambda: base(epochs=None, steps=-3), "baseline length is -3 steps"),
    (lambda: base(decay=StepDecay(milestones=(4, 12))), "milestone 12 is at or after the end of training (10 epochs)"),
    (lambda: base(decay=StepDecay(milestones=(10,))), "milestone 10 is at or after the end of training (10 epochs)"),
    (lambda: base(decay=CosineDecay(floor=0.1)), "cosine floor 0.1 is not below the LR 0.1"),
    (lambda: base(warmup=RampWarmup(length=10)), "warm-up of 10 epochs is not shorter than the training (10 epochs)"),
    (
        lambda: video(warmup=RampWarmup(length=6_500)),
        "warm-up of 6500 steps is not shorter than the training (6000 steps)",
    ),
]

LAWS: list[tuple[Callable[[], object], str]] = [
    (lambda: StepDecay(milestones=(5, 5)), "milestones [5, 5] must be above 0 and increase"),
    (lambda: StepDecay(milestones=(0, 5)), "milestones [0, 5] must be above 0"),
    (lambda: StepDecay(milestones=(NAN,)), "milestones [nan] must be above 0"),
    (lambda: StepDecay(gamma=0), "gamma 0 must be above 0"),
    (lambda: StepDecay(gamma=INF), "gamma inf must be above 0"),
    (lambda: StepDecay(milestones=(5,), factors=(0.1, 0.2)), "2 LR factors for 1 milestones"),
    (lambda: StepDecay(milestones=(5,), factors=(0.0,)), "LR factors [0.0] must be above 0"),
    (lambda: StepDecay(milestones=(5,), factors=(INF,)), "LR factors [inf] must be above 0"),
    (lambda: CosineDecay(floor=-1), "cosine floor -1 is out of range"),
    (lambda: CosineDecay(floor=INF), "cosine floor inf is out of range"),
    (lambda: CurveDecay(points=((0, 1), (0.5, 1))), "fractions [0.0, 0.5] of an LR curve must increase from 0 to 1"),
    (lambda: CurveDecay(points=((0, 1), (0.5, 1), (0.5, 0), (1, 0))), "fractions [0.0, 0.5, 0.5, 1.0] of an LR curve"),
    (lambda: CurveDecay(points=((0, 1), (1, -1))), "factors [1.0, -1.0] of an LR curve must be 0 or more"),
    (lambda: CurveDecay(points=((0, 0), (1, 0))), "factors [0.0, 0.0] of an LR curve must be 0 or more, and one above"),
    (lambda: CurveDecay(points=((0, 1), (1, NAN))), "factors [1.0, nan] of an LR curve"),
    (lambda: CurveDecay(points=((0, 1), (1, INF))), "factors [1.0, inf] of an LR curve"),
    (lambda: CurveDecay(points=((0, "1"), (1, 0))), "pairs of numbers (fraction, factor) are needed"),
    (lambda: CurveDecay(points=(0, 1)), "pairs of numbers (fraction, factor) are needed"),
    (lambda: CurveDecay.sampled(lambda fraction: fraction, points=1), "an LR curve of 1 points: at least 2"),
    (lambda: RampWarmup(length=0), "warm-up of length 0 from LR 0.0"),
    (lambda: RampWarmup(length=1, start_lr=-1), "warm-up of length 1 from LR -1"),
    (lambda: RampWarmup(length=1, start_lr=INF), "warm-up of length 1 from LR inf"),
    (lambda: FactorWarmup(steps=0), "warm-up of 0 steps"),
    (lambda: FactorWarmup(steps=5, law="cubic"), "warm-up law 'cubic' is unknown: linear or constant"),
    (lambda: FactorWarmup(steps=5, factor=0), "warm-up factor 0 is out of range"),
    (lambda: FactorWarmup(steps=5, factor=INF), "warm-up factor inf is out of range"),
    (lambda: Role(multiplier=-1), "role with multiplier -1, frozen until step 0"),
    (lambda: Role(multiplier=INF), "role with multiplier inf, frozen until step 0"),
    (lambda: Role(frozen_until=-1), "frozen until step -1"),
]

OPTIONS: list[tuple[Callable[[], object], str]] = [
    (lambda: multigrid(base(), epoch_factor=0), "epoch_factor 0 is out of range"),
    (lambda: multigrid(base(), epoch_factor=NAN), "epoch_factor nan is out of range"),
    (lambda: multigrid(base(), epoch_factor=INF), "epoch_factor inf is out of range"),
    (lambda: multigrid(base(), short_sizes=(0,)), "short sizes [0.0] must be areas in (0, 1]"),  # type: ignore[list-item]
    (lambda: multigrid(base(), steps=0), "steps 0 is out of range"),
    (lambda: multigrid(base(), cycles=0), "cycles 0 is below 1"),
    (
        lambda: multigrid(base(), short_sizes=(Scale.of(1, 0.5).area, 2)),
        "short sizes [0.25, 2.0] must be areas in (0, 1]",
    ),  # type: ignore[list-item]
    (lambda: multigrid(base(), lr_scaling="cubic"), "lr_scaling 'cubic' is unknown: linear, sqrt, none"),
    (lambda: constant(base(), epoch_factor=-1), "epoch_factor -1 is out of range"),
    (lambda: constant(base(), steps=0), "steps 0 is out of range"),
    (lambda: constant(base(), lr_scaling="cubic"), "lr_scaling 'cubic' is unknown: linear, sqrt, none"),
    (lambda: constant(base(frames=1), shape=Scale.of(0.25, 1)), "is 0 frames of 64 pixels: at least 1 of each"),
    (lambda: cascade(base(), lr_scaling="cubic"), "lr_scaling 'cubic' is unknown: linear, sqrt, none"),
    (lambda: cascade(base(), finish="soon"), "finish 'soon' is unknown: law, cosine"),
    (lambda: cascade(base(), batch_growth=1.5), "batch_growth 1.5 is out of range: 0 (the batch stays) to 1 (the work"),
    (lambda: cascade(base(), batch_growth=float("nan")), "batch_growth nan is out of range"),
    (lambda: cascade(base(), shapes=()), "cascade shapes [] must end with the full grid"),
    (lambda: cascade(base(), shapes=(Scale.of(0.5, 0.5),)), "cascade shapes [T/2·S/2] must end with the full grid"),
    (lambda: cascade(base(), weights=(1, 2)), "2 weights for 4 cascade shapes"),
    (lambda: cascade(base(), weights=(1, 0, 1, 1)), "weights 0 is out of range"),
    (lambda: control(constant(base()), epoch_factor=0), "epoch_factor 0 is out of range"),
    (lambda: control(constant(base()), epoch_factor=INF), "epoch_factor inf is out of range"),
    (
        lambda: Scale(1, 0.5),
        "grid scale: its area is 0.5, and an exact fraction is needed; Scale.of(0.5, 0.7071) takes",
    ),
    (lambda: Scale(0.5, 1), "grid scale: its time is 0.5, and an exact fraction is needed"),
    (lambda: Scale(1, 1, 0.5), "grid scale: its tokens is 0.5, and an exact fraction is needed"),
    (
        lambda: cascade(base(), shapes=[(1, 0.5), 1]),
        "grid scale 1: a pair of numbers is accepted, of the frames and of",
    ),
    (lambda: cascade(base(), shapes=["S/2"]), "grid scale 'S/2': a pair of numbers is accepted"),
    (lambda: cascade(base(), shapes=["11"]), "grid scale '11': a pair of numbers is accepted"),
    (lambda: Scale.of(0, 1), "grid scale [0, 1] is out of range"),
    (lambda: Scale.of(1, 0), "grid scale [1, 0] is out of range"),
    (lambda: Scale.of(1.5, 1), "grid scale [1.5, 1] is out of range"),
    (lambda: Scale.of(1, 1.25), "grid scale [1, 1.25] is out of range"),
    (lambda: Scale.of(1, 1.2), "grid scale [1, 1.2] is out of range"),
    (lambda: Scale.of(1.23, 0.5), "grid scale [1.23, 0.5] is out of range"),
    (lambda: Scale.of(1, -0.5), "grid scale [1, -0.5] is out of range"),
    (lambda: cascade(base(), shapes=[(1, 1.2), (1, 1)]), "grid scale [1, 1.2] is out of range"),
    (lambda: Scale.of(1, 1, 1.23), "its share of tokens 1.23 is out of range"),
    (lambda: Scale(1, Fraction(-1, 2)), "grid scale: its time 1, area -1/2 and tokens 1 must all be in (0, 1]"),
    (lambda: Scale.of(NAN, 1), "grid scale [nan, 1] is not a pair of finite numbers"),
    (lambda: multigrid(base(frames=1)), "grid T/4·S/2 of a 1×64² baseline is 0 frames of 32 pixels"),
    (lambda: superresolution(video(), nesting="random"), "nesting 'random' is unknown: hierarchical, synchronous"),
    (lambda: superresolution(video(), epoch_factor=0), "epoch_factor 0 is out of range: a number above 0 is needed"),
    (lambda: superresolution(video(), epoch_factor=INF), "epoch_factor inf is out of range"),
    (lambda: superresolution(video(), batch="huge"), "batch 'huge' is unknown: constant or scaled"),
    (lambda: superresolution(video(decay=NoDecay())), "restarts a cosine; the baseline's decay is NoDecay()"),
    (
        lambda: superresolution(video(), sizes=(32, 48)),
        "sizes [32, 48] must increase from at least 1 to the baseline's 64",
    ),
    (lambda: superresolution(video(), sizes=(48, 32, 64)), "sizes [48, 32, 64] must increase"),
    (lambda: superresolution(video(), sizes=()), "sizes are empty"),
    (
        lambda: superresolution(video(), frames=(0, 15)),
        "frames [0, 15] must increase from at least 1 to the baseline's 15",
    ),
    (
        lambda: superresolution(video(), nesting="spatial", frames=(7, 15)),
        "frames [7, 15] have no use in spatial nesting",
    ),
    (lambda: superresolution(video(), nesting="temporal", sizes=(32, 64)), "sizes [32, 64] have no use in temporal"),
    (
        lambda: superresolution(video(), mirrored=True),
        "a mirrored clip has an even number of frames; the baseline's has 15",
    ),
    (
        lambda: superresolution(video(frames=14), frames=(7, 14), mirrored=True),
        "frames [7, 14]: mirrored clips have even",
    ),
    (lambda: superresolution(video(), stage_lrs=(1e-4,)), "1 stage LRs for 6 stages"),
    (lambda: superresolution(video(), stage_lrs=(0,) * 6), "must be above the cosine's floor 0"),
    (lambda: superresolution(video(), stage_lrs=(INF,) * 6), "stage LRs [inf, inf, inf, inf, inf, inf] must be"),
    (lambda: large_minibatch(video(), 0), "minibatch factor 0 is below 1"),
    (lambda: large_minibatch(video(), 7), "6,000 steps do not divide by the minibatch factor 7"),
    (lambda: large_minibatch(base(), 2), "this baseline's length is in epochs"),
]

BUILT: list[tuple[Callable[[], object], str]] = [
    (lambda: stage(steps=0), "stage 'only' has 0 steps: at least 1"),
    (lambda: stage(pattern=()), "stage 'only' has no batch shape"),
    (lambda: BatchShape(frames=16, size=64, batch=0, bn_batch=8), "batch 0 is below 1 in batch shape 0×16×64²"),
    (lambda: Plan(name="mine", baseline=base(), stages=()), "plan 'mine' has no stages"),
    (lambda: constant(base(epochs=1e300)), "plan 'constant' is longer than 9,223,372,036,854,775,807"),
    (
        lambda: Plan(name="mine", baseline=base(), stages=(stage(),), warmup_samples=40),
        "warm-up of 40 samples does not end",
    ),
    (
        lambda: Plan(name="mine", baseline=base(warmup=FactorWarmup(steps=5)), stages=(stage(),)),
        "warm-up of 5 steps does not end within the plan's 5 of 8 clips",
    ),
    (
        lambda: superresolution(large_minibatch(video(), 2)),
        "warm-up of 5,000 steps does not end within the plan's 3,000",
    ),
]


@pytest.mark.parametrize(("build", "message"), BASELINES + LAWS + OPTIONS + BUILT)
def test_it_is_refused_in_one_line_with_value_and_reason(build: Callable[[], object], message: str) -> None:
    with pytest.raises(PlanError, match=re.escape(message)) as caught:
        build()
    assert "\n" not in str(caught.value)


def test_what_is_just_within_the_limits_is_accepted() -> None:
    assert base(lr_batch=1).peak_lr == pytest.approx(0.8)
    assert base(epochs=0.001).total_steps == len(constant(base(epochs=0.001))) == 1  # a tenth of a step
    assert constant(base(batch=1, frames=1, size=1)).shapes == (BatchShape(frames=1, size=1, batch=1, bn_batch=1),)
    assert large_minibatch(video(), 1, warmup=None) == video()
    assert len(Plan(name="mine", baseline=base(), stages=(stage(steps=sys.maxsize),))) == sys.maxsize
    assert Plan(name="mine", baseline=base(warmup=FactorWarmup(steps=4)), stages=(stage(),))[4].lr == 0.1
    assert constant(base(warmup=FactorWarmup(steps=1)))[0].lr == pytest.approx(0.1)
    assert constant(base(roles={"frozen": Role(multiplier=0)}))[0].lr_of("frozen") == 0
    assert CurveDecay.sampled(lambda fraction: 1 - fraction, points=2).points == ((0, 1), (1, 0))
    assert [cell.size for cell in multigrid(base(), long_shapes=(), short_sizes=(1,)).stages[0].pattern] == [64, 64]  # type: ignore[list-item]
    frames = [stage.base.frames for stage in superresolution(video(), nesting="temporal", frames=(1, 15)).stages]
    assert frames == [1, 15]


def test_too_few_steps_name_the_stage_that_would_have_none() -> None:
    decay = StepDecay(milestones=(4, 8))
    expected = "9 steps for 10 stages leave stage 'fine-tuning 1' without a step: train for at least 10"
    with pytest.raises(PlanError, match=re.escape(expected)):
        multigrid(base(decay=decay, epochs=9, clips=8), steps=9)
    with pytest.raises(PlanError, match="1 step for 10 stages leaves stage"):
        multigrid(base(decay=decay, epochs=9, clips=8), steps=1)
    assert [s.steps for s in multigrid(base(decay=decay), steps=10).stages] == [1] * 10


def test_a_stage_that_rounds_to_nothing_takes_a_step_from_its_neighbours() -> None:
    # One part in a thousand of forty steps is none; the plan stays at forty.
    plan = constant(base(decay=StepDecay(milestones=(5, 5.001, 9.999, 9.9999))), steps=40)
    assert [s.steps for s in plan.stages] == [20, 1, 17, 1, 1]


@pytest.mark.parametrize(
    ("needs", "reason"),
    [
        (
            ShapeConstraints(min_frames=8),
            "stage 'cycle 1, T/4·S/√2': model 'net' cannot take the shape 4×32×32 that comes at step 0",
        ),
        (ShapeConstraints(min_frames=8), "4 frames, the model needs at least 8"),
        (ShapeConstraints(frames_multiple=8), "4 frames, the model needs a multiple of 8"),
        (ShapeConstraints(min_size=40), "32 pixels, the model needs at least 40"),
        (ShapeConstraints(size_multiple=64), "32 pixels, the model needs a multiple of 64"),
    ],
)
def test_a_shape_that_the_model_cannot_take_names_stage_step_and_reason(needs: ShapeConstraints, reason: str) -> None:
    with pytest.raises(PlanError, match=re.escape(reason)):
        multigrid(base()).require(needs, "net")


@pytest.mark.parametrize(
    ("plan", "multiple", "end"),
    [
        (multigrid(base()), 64, ": 32 pixels, the model needs a multiple of 64"),
        (constant(base()), 48, ": 64 pixels, the model needs a multiple of 48"),
        (
            multigrid(base()),
            48,
            ": 32 pixels, the model needs a multiple of 48; the full shape 16×64×64 is refused too: change it first",
        ),
    ],
)
def test_that_the_full_shape_is_refused_too_is_said_of_a_smaller_one(plan: Plan, multiple: int, end: str) -> None:
    with pytest.raises(PlanError, match=re.escape(end) + "$"):
        plan.require(ShapeConstraints(size_multiple=multiple))


def test_a_model_of_a_fixed_window_takes_no_other_number_of_frames() -> None:
    needs = ShapeConstraints(window=8)
    assert needs.violation(Shape(8, 16, 16)) is None
    for frames in (7, 9, 16):
        assert needs.violation(Shape(frames, 16, 16)) == f"{frames} frames, the model takes a window of 8"


def test_both_sides_of_a_shape_are_a_multiple() -> None:
    needs = ShapeConstraints(size_multiple=8)
    assert needs.violation(Shape(4, 16, 24)) is None
    assert needs.violation(Shape(4, 16, 20)) == "20 pixels, the model needs a multiple of 8"
    assert needs.violation(Shape(4, 20, 16)) == "20 pixels, the model needs a multiple of 8"
    for oblong in (Shape(4, 16, 24), Shape(4, 24, 16)):
        assert ShapeConstraints(min_size=17).violation(oblong) == "16 pixels, the model needs at least 17"


@pytest.mark.parametrize("name", ["min_frames", "frames_multiple", "min_size", "size_multiple"])
@pytest.mark.parametrize("value", [0, -1, 2.0, True])
def test_needs_that_are_no_whole_number_are_refused(name: str, value: Any) -> None:
    with pytest.raises(PlanError, match=f"a model's {name} is .*; accepted: a whole number, at least 1"):
        ShapeConstraints(**{name: value})


def test_the_step_named_is_the_first_with_the_refused_shape() -> None:
    plan = cascade(base(size=32), shapes=(Scale.of(1, 0.75), Scale.of(0.25, 1), Scale.of(1, 1)))
    with pytest.raises(PlanError) as caught:
        plan.require(ShapeConstraints(min_frames=5), "net")
    first = plan.stages[0].steps
    assert plan[first].shape.frames == 4
    assert f"comes at step {first:,}:" in str(caught.value)
    assert f"stage {plan.stages[1].name!r}" in str(caught.value)


def test_a_plan_within_a_models_needs_is_accepted() -> None:
    multigrid(base()).require(ShapeConstraints(min_frames=4, frames_multiple=4, min_size=32), "net")
    assert ShapeConstraints().violation(Shape(1, 1, 1)) is None


@pytest.mark.parametrize(("rank", "world"), [(-1, 2), (2, 2), (0, 0)])
def test_a_rank_that_there_is_not_is_refused(rank: int, world: int) -> None:
    with pytest.raises(PlanError, match=re.escape(f"rank {rank} is not one of {world} ranks: 0 to {world - 1} are")):
        rank_slice(8, 4, rank, world)


def test_an_unknown_parameter_role_is_refused_with_those_known() -> None:
    step = constant(base(roles={"flow": Role(), "align": Role()}))[0]
    with pytest.raises(PlanError, match=re.escape("role 'head' is not in the plan: ['align', 'flow']")):
        step.lr_of("head")
    with pytest.raises(PlanError, match="it has none"):
        constant(base())[0].lr_of("head")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "a plan is not valid JSON"),
        ("[" * 99_999, "a plan is not valid JSON"),
        ("9" * 9_999, "a plan is not valid JSON"),
        ("[1, 2]", "expected a plan, got tuple"),
        ('{"kind": "Role"}', "expected a plan, got Role"),
        ('{"kind": "Torch"}', "unknown kind 'Torch' in a plan"),
        ('{"kind": "Plan", "name": "x"}', "Plan in a plan does not fit"),
        ('{"kind": "Plan", "name": "x", "stages": [], "baseline": null, "more": 1}', "Plan in a plan does not fit"),
        ('{"kind": "Plan", "name": "x", "stages": [1], "baseline": null}', "Plan in a plan does not fit"),
    ],
)
def test_a_text_that_is_no_plan_is_refused(text: str, message: str) -> None:
    with pytest.raises(PlanError, match=re.escape(message)):
        Plan.from_json(text)


def spoilt(path: str, value: object) -> str:
    """The text of a plan with one of its values replaced, which is found by its keys."""
    data = json.loads(multigrid(base(decay=CosineDecay(), warmup=RampWarmup(length=1.0))).to_json())
    node, keys = data, [int(key) if key.isdigit() else key for key in path.split(".")]
    for key in keys[:-1]:
        node = node[key]
    assert keys[-1] in node or isinstance(node, list)
    node[keys[-1]] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("baseline.lr", NAN, "a plan holds the number nan; finite numbers below 2**63 are accepted"),
        ("stages.0.steps", 1 << 63, "a plan holds the number 9223372036854775808; finite numbers below 2**63"),
        ("stages.0.steps", {"a": 1}, "Stage in a plan does not fit: its steps is {'a': 1}"),
        ("baseline.warmup", {"kind": "Ramp"}, "unknown kind 'Ramp' in a plan: Baseline, BatchShape, ConstantRate, Cos"),
    ],
)
def test_the_value_that_does_not_fit_a_plan_is_named(path: str, value: object, message: str) -> None:
    with pytest.raises(PlanError, match=f"^{re.escape(message)}"):
        Plan.from_json(spoilt(path, value))


@pytest.mark.parametrize(
    "path",
    [
        *("name", "baseline", "stages", "warmup_samples", "mirrored"),
        *("baseline.lr", "baseline.batch", "baseline.decay", "baseline.warmup", "baseline.roles", "baseline.epochs"),
        *("baseline.warmup.length", "baseline.decay.floor"),
        *("stages.0", "stages.0.steps", "stages.0.pattern", "stages.0.rate", "stages.0.lr_factor", "stages.0.name"),
        *("stages.0.pattern.0", "stages.0.pattern.0.batch", "stages.0.pattern.0.frames", "stages.0.rate.peak"),
    ],
)
@pytest.mark.parametrize(
    "value",
    [
        *(
            float("nan"),
            float("inf"),
            -float("inf"),
            1 << 63,
            10**400,
            {"kind": "PolynomialDecay"},
            {"a": 1},
            [[]],
            True,
        ),
        {"kind": "Stage", "name": "x", "steps": 1, "pattern": [3], "rate": None},
    ],
    ids=lambda value: reprlib.repr(value),
)
def test_a_plan_with_a_value_of_the_wrong_kind_or_no_finite_number_is_refused(path: str, value: object) -> None:
    if path == "mirrored" and value is True:
        return
    with pytest.raises(PlanError) as caught:
        Plan.from_json(spoilt(path, value))
    assert "\n" not in str(caught.value)
