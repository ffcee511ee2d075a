"""Shapes on the multiples that a model needs, and steps whose work differs from what is intended."""

from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from vcycle.errors import PlanError
from vcycle.plan import (
    Baseline,
    CosineDecay,
    Plan,
    Scale,
    ShapeConstraints,
    cascade,
    constant,
    multigrid,
    superresolution,
)
from vcycle.plan.baseline import Baseline as Recipe


def base(**changes: object) -> Baseline:
    values = {"batch": 16, "frames": 16, "size": 224, "clips": 10_000, "epochs": 90, "lr": 0.1}
    return Recipe(**(values | changes))  # type: ignore[arg-type]


def cells(plan: Plan) -> list[tuple[int, int, int]]:
    return [(cell.frames, cell.size, cell.batch) for cell in plan.shapes]


def test_a_cascade_is_rounded_to_the_nearest_multiple_and_its_batch_follows() -> None:
    # 224/√2 is 158.4: 9.9 patches of 16. The area of 160² is (160/224)² = 0.5102, so 16 clips become 31.36.
    plan = cascade(base(), size_multiple=16)
    assert cells(plan) == [(8, 112, 128), (16, 112, 64), (16, 160, 31), (16, 224, 16)]
    assert plan.notes == (
        "T·S/√2 is 16×160² (rounded from 16×158²: size a multiple of 16), 1.02 times the voxels of the scale: the "
        "batch and the LR follow from this shape",
    )
    assert plan.stages[2].lr_factor == pytest.approx((224 / 160) ** 2)
    assert "rounded from 16×158²" in str(plan)
    assert cascade(base(), **ShapeConstraints(min_size=32, size_multiple=16).multiples) == plan


def test_multigrid_has_every_shape_of_both_cycles_on_the_multiples() -> None:
    needs = ShapeConstraints(frames_multiple=4, size_multiple=16)
    plan = multigrid(base(frames=24), **needs.multiples)  # T/4 is 6 frames, rounded to 4
    assert {t for t, _, _ in cells(plan)} == {4, 12, 24}
    assert {s for _, s, _ in cells(plan)} == {112, 160, 224}
    # 16 clips of 24×224², in 4×160²: 24/4 · (224/160)² = 11.76 times as many; and 24/12 · (224/160)² = 3.92.
    assert {b for t, s, b in cells(plan) if (t, s) == (4, 160)} == {188}
    assert {b for t, s, b in cells(plan) if (t, s) == (12, 160)} == {63}


def test_multiples_that_every_shape_has_change_nothing() -> None:
    plain = cascade(base(size=256, frames=32), shapes=[(0.5, 0.5), (1, 1)])
    assert cascade(base(size=256, frames=32), shapes=[(0.5, 0.5), (1, 1)], size_multiple=16, frames_multiple=4) == plain
    assert plain.notes == ()


def test_images_have_the_work_of_their_own_shapes() -> None:
    # T/2 of one frame is one frame: the first stage has a quarter of the pixels, not an eighth.
    plan = cascade(base(frames=1, batch=64))
    assert cells(plan) == [(1, 112, 256), (1, 158, 128), (1, 224, 64)]
    assert [stage.lr_factor for stage in plan.stages] == [4, 4, 2, 1]
    assert plan.notes == (
        "T/2·S/2 is 1×112², 2.00 times the voxels of the scale: the batch and the LR follow from this shape",
    )
    assert constant(base(frames=1, batch=64), shape=Scale.of(0.5, 0.5)).shapes[0].batch == 256


def test_halves_are_rounded_up_and_a_tenth_of_the_work_is_not_noted() -> None:
    # T/2 of 15 frames is 7.5; T/11 of 10 is 0.91, whose work of 1.1 times the scale's is just within the tolerance.
    plan = cascade(base(frames=15), shapes=[(0.5, 1), (1, 1)])
    assert cells(plan) == [(8, 224, 32), (15, 224, 16)]
    small = constant(base(frames=10), shape=Scale(Fraction(1, 11), Fraction(1)))
    assert cells(small) == [(1, 224, 176)]
    assert plan.notes == small.notes == ()


def test_a_step_of_other_work_than_intended_is_noted() -> None:
    plan = cascade(base(batch=1, size=100), shapes=[(1, 0.8), (1, 1)])  # 1/0.64 = 1.56 clips are 2
    assert plan.notes == ("a step of 2×16×80² has 1.28 times the intended work: the batch is rounded to whole clips",)
    grown = cascade(base(batch=2, size=100), shapes=[(1, 0.8), (1, 1)], batch_growth=0.5)  # 2/0.8 = 2.5 clips are 3
    assert grown.notes == ("a step of 3×16×80² has 1.20 times the intended work: the batch is rounded to whole clips",)


def test_notes_are_no_part_of_a_plans_value() -> None:
    plan = cascade(base(), size_multiple=16)
    assert plan.notes
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert again.fingerprint == plan.fingerprint
    assert again.notes == ()


def restored(**changes: object) -> Baseline:
    values = {"batch": 8, "frames": 15, "size": 64, "clips": 26_600, "steps": 6_000, "lr": 2e-4, "epochs": None}
    return base(**(values | {"decay": CosineDecay(floor=1e-7)} | changes))


def test_super_resolution_rounds_its_default_sizes_and_frames() -> None:
    plan = superresolution(restored(frames=16, size=72), frames_multiple=4, size_multiple=8)
    # 36 of 72 pixels; 8, 12 and 16 of 16 frames.
    assert [(cell.frames, cell.size) for cell in plan.shapes] == [(t, s) for s in (32, 72) for t in (8, 12, 16)]
    assert plan.notes == ("size 36 is rounded to 32, a multiple of 8",)
    mirrored = superresolution(restored(frames=18), mirrored=True, frames_multiple=3)  # half is 8: 9 would be odd
    assert [cell.frames for cell in mirrored.shapes][:3] == [6, 12, 18]


def test_super_resolution_notes_a_batch_that_cannot_keep_the_work() -> None:
    plan = superresolution(restored(batch=1), batch="scaled", frames=[7, 15], sizes=[64])  # 15/7 = 2.1 clips are 2
    assert plan.notes == ()
    plan = superresolution(restored(batch=1), batch="scaled", frames=[8, 15], sizes=[64])  # 15/8 = 1.9 clips are 1
    assert plan.notes == ("a step of 1×8×64² has 0.53 times the intended work: the batch is rounded to whole clips",)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (
            lambda: cascade(base(), size_multiple=48),
            r"size 224 is not a multiple of 48 \(size_multiple\): 192 is one",
        ),
        (
            lambda: multigrid(base(), frames_multiple=5),
            r"frames 16 is not a multiple of 5 \(frames_multiple\): 15 is",
        ),
        (lambda: constant(base(), frames_multiple=0), "frames_multiple is 0; accepted: a whole number, at least 1"),
        (
            lambda: superresolution(restored(), sizes=[36, 64], size_multiple=8),
            r"the model cannot take the shape 7×36×36 .*: 36 pixels, the model needs a multiple of 8",
        ),
        (
            lambda: superresolution(restored(frames=16), frames=[6, 16], frames_multiple=4),
            r"the model cannot take the shape 6×32×32 .*: 6 frames, the model needs a multiple of 4",
        ),
        (
            lambda: constant(base(size=64), shape=Scale.of(1, 0.5), size_multiple=64),
            r"the model cannot take the shape 16×32×32 .*: 32 pixels, the model needs a multiple of 64",
        ),
        (
            lambda: multigrid(base(), frames_multiple=8),
            "stage 'cycle 1, T/4·S/√2': the model cannot take the shape 4×112×112 that comes at step 0: 4 frames",
        ),
    ],
)
def test_multiples_that_do_not_fit_are_refused(build, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        build()


@settings(max_examples=150)
@given(st.data())
def test_every_shape_has_its_multiples_and_its_intended_work_or_a_note(data: st.DataObject) -> None:
    frames, size = data.draw(st.sampled_from([1, 2, 4, 8])), data.draw(st.sampled_from([1, 2, 14, 16, 32]))
    baseline = base(
        batch=data.draw(st.integers(1, 64)),
        frames=frames * data.draw(st.integers(1, 8)),
        size=size * data.draw(st.integers(max(1, 16 // size), 320 // size)),
    )
    build = data.draw(st.sampled_from([cascade, multigrid]))
    try:
        plan = build(baseline, frames_multiple=frames, size_multiple=size)
    except PlanError:
        assume(False)  # no frame at T/4
        raise
    one = Fraction(plan.baseline_shape.voxels)
    for cell in plan.shapes:
        assert cell.frames % frames == 0
        assert cell.size % size == 0
        if not any(str(cell) in note for note in plan.notes):
            assert abs(cell.voxels / one - 1) <= Fraction(1, 10)
