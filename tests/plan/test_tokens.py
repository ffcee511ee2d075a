"""Plans that drop tokens of transformers: an axis beside frames and pixels."""

import json
from fractions import Fraction

import pytest

from vcycle.errors import PlanError
from vcycle.plan import Baseline, BatchShape, Plan, Scale, ShapeConstraints, cascade, constant, control, multigrid
from vcycle.plan.build import LR_SCALINGS

BASELINE = Baseline(batch=16, frames=16, size=224, clips=1_000, epochs=16, lr=0.1, bn_batch=8)
TURBO = cascade(BASELINE, shapes=[(1, 1, 0.25), (1, 1, 0.5), (1, 1)])
"""Few tokens first, then half, then all, as many steps of each."""


def test_the_batch_and_the_lr_of_a_step_follow_its_tokens_and_its_work_stays() -> None:
    # 16,000 samples in equal numbers of steps of 64, 32 and 16 clips: 143 each, in whole steps 429.
    assert [(stage.steps, stage.base.batch, stage.base.tokens) for stage in TURBO.stages] == [
        (143, 64, 0.25),
        (143, 32, 0.5),
        (143, 16, 1.0),
    ]
    assert [stage.name for stage in TURBO.stages] == ["T·S·N/4", "T·S·N/2", "T·S"]
    assert [TURBO[k].lr for k in (0, 143, 286)] == pytest.approx([0.4, 0.2, 0.1])
    assert [TURBO[k].tokens for k in (0, 142, 143, 286, 428)] == [0.25, 0.25, 0.5, 1.0, 1.0]
    assert {cell.work for cell in TURBO.shapes} == {16 * 16 * 224**2}
    assert {cell.shape for cell in TURBO.shapes} == {TURBO.baseline_shape.shape}
    assert TURBO.drops_tokens
    assert not constant(BASELINE).drops_tokens
    assert TURBO.saving().work == TURBO.saving().steps == pytest.approx(1000 / 429)


@pytest.mark.parametrize("scaling", LR_SCALINGS)
def test_tokens_shrink_with_frames_and_pixels_under_the_same_laws(scaling: str) -> None:
    plan = cascade(BASELINE, shapes=[(0.5, 1, 0.5), (1, 1)], lr_scaling=scaling, batch_growth=0.5)
    cell = plan.shapes[0]
    assert (cell.frames, cell.batch, cell.tokens, cell.bn_batch) == (8, 32, 0.5, 8)
    assert plan.stages[0].lr_factor == pytest.approx({"linear": 2, "sqrt": 2**0.5, "none": 1}[scaling])
    assert cell.work == plan.baseline_shape.work / 2


def test_a_whole_training_and_a_long_cycle_can_drop_tokens() -> None:
    plan = constant(BASELINE, shape=Scale.of(1, 1, tokens=0.25))
    assert plan.shapes == (BatchShape(frames=16, size=224, batch=64, bn_batch=8, tokens=0.25),)
    assert len(plan) == 250
    cycles = multigrid(BASELINE, long_shapes=[(0.5, 1, 0.25), (1, 1)])
    assert [(cell.size, cell.tokens) for cell in cycles.stages[0].pattern] == [(112, 0.25), (158, 0.25), (224, 0.25)]
    assert [cell.batch for cell in cycles.stages[0].pattern] == [512, 256, 128]
    assert {cell.tokens for cell in cycles.stages[-1].pattern} == {1.0}


def test_a_shape_on_a_multiple_keeps_its_share_of_tokens() -> None:
    plan = cascade(BASELINE, shapes=[(1, 0.7071, 0.5), (1, 1)], size_multiple=16)
    assert str(plan.shapes[0]) == "63×16×160² with 50 % of the tokens"  # 16 clips, times (224/160)², times 2


def test_the_control_keeps_all_tokens() -> None:
    assert {step.tokens for step in control(TURBO)} == {1.0}


def test_shares_are_simple_fractions() -> None:
    assert Scale.of(1, 1, 0.3333).tokens == Fraction(1, 3)
    assert Scale.each([(1, 1, 0.25)]) == (Scale(Fraction(1), Fraction(1), Fraction(1, 4)),)


def test_json_names_the_share_only_where_tokens_are_dropped() -> None:
    assert Plan.from_json(TURBO.to_json()) == TURBO
    cells = [stage["pattern"][0] for stage in json.loads(TURBO.to_json())["stages"]]
    assert [cell.get("tokens") for cell in cells] == [0.25, 0.5, None]
    assert TURBO.fingerprint == "739707239630"
    whole = cascade(BASELINE, shapes=[(0.5, 1, 1), (1, 1, 1.0)])
    assert whole == cascade(BASELINE, shapes=[(0.5, 1), (1, 1)])
    assert "tokens" not in whole.to_json()


def test_table_and_rows_have_a_column_only_where_tokens_are_dropped() -> None:
    lines = str(TURBO).splitlines()
    assert lines[2].split() == ["stage", "steps", "epoch", "frames", "size", "tokens", "batch", "BN", "LR", "work"]
    assert lines[4].split() == ["T·S·N/4", "143", "0", "16", "224", "0.25", "64", "8", "0.4", "1.00"]
    assert [row["tokens"] for row in TURBO.rows()] == [step.tokens for step in TURBO]
    whole = constant(BASELINE)
    assert "tokens" not in str(whole)
    assert "tokens" not in next(whole.rows())


def test_work_and_savings_can_be_counted_by_a_cost() -> None:
    """As `vcycle plan --flops` does: here attention alone, whose pairs of tokens shrink with the square."""
    pairs = lambda cell: cell.batch * cell.tokens**2  # noqa: E731
    assert [line.split()[-1] for line in TURBO.table(pairs).splitlines()[4:7]] == ["0.25", "0.50", "1.00"]
    assert TURBO.saving(pairs).work == pytest.approx(1000 / (143 * 1.75))
    assert "2.33× fewer steps, 4.00× less work" in TURBO.table(pairs).replace("\n", " ")


def test_models_that_need_all_tokens_refuse_the_first_step_that_drops_some() -> None:
    TURBO.require(ShapeConstraints())
    with pytest.raises(PlanError) as caught:
        TURBO.require(ShapeConstraints(all_tokens=True), "mvit_v2_s")
    assert str(caught.value) == (
        "plan 'cascade', stage 'T·S·N/4': model 'mvit_v2_s' needs all tokens of a clip, but step 0 keeps 25 % of them; "
        "accepted: VideoMAE, ViViT, V-JEPA 2, the VisionTransformer of torchvision and of timm, and networks that "
        "contain a vcycle.nn.TokenDropping"
    )
    constant(BASELINE).require(ShapeConstraints(all_tokens=True))


@pytest.mark.parametrize("tokens", [0, -0.5, 1.5, float("nan")])
def test_shares_that_are_out_of_range_are_refused(tokens: float) -> None:
    with pytest.raises(PlanError, match=r"tokens"):
        Scale.of(1, 1, tokens)
    with pytest.raises(PlanError, match=r"tokens .* out of range"):
        BatchShape(frames=1, size=8, batch=1, bn_batch=1, tokens=tokens)


def test_a_scale_that_is_not_finite_names_its_tokens_only_if_it_drops_some() -> None:
    with pytest.raises(PlanError, match=r"^grid scale \[nan, 1\] is not a pair of finite numbers$"):
        Scale.of(float("nan"), 1)
    with pytest.raises(PlanError, match=r"\[nan, 1\] is not a pair of finite numbers and a share of tokens, 0.5$"):
        Scale.of(float("nan"), 1, 0.5)


def test_a_scale_of_four_numbers_is_refused() -> None:
    with pytest.raises(PlanError, match=r"a pair of numbers is accepted.*with the share of tokens as a third"):
        cascade(BASELINE, shapes=[(1, 1, 0.5, 2), (1, 1)])  # type: ignore[list-item]
