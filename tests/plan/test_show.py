"""The table and the picture of a plan say at a glance what it does."""

from dataclasses import replace
from fractions import Fraction
from itertools import islice

import numpy as np
import pytest

from vcycle.plan import Baseline, CosineDecay, CurveDecay, Plan, cascade, constant, multigrid
from vcycle.plan.colors import color_of
from vcycle.plan.show import mark_values, summary
from vcycle.utils.extras import new_figure

pytest.importorskip("matplotlib")
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba


def test_the_table_has_a_line_per_stage_at_a_hundred_columns(plans: dict[str, Plan]) -> None:
    for plan in plans.values():
        lines = str(plan).splitlines()
        assert max(map(len, lines)) <= 100
        assert plan.fingerprint in lines[0]
        rows = [line for line in lines if any(line.strip().startswith(stage.name) for stage in plan.stages)]
        assert len(rows) == len(plan.stages)


def test_a_shape_that_is_given_twice_is_marked_below_the_table(plans: dict[str, Plan]) -> None:
    baseline = Baseline(batch=4, frames=8, size=32, clips=100, epochs=12, lr=0.1)
    said = "stage T·S/2 repeats the one before it: the same shape, batch and LR"
    plan = cascade(baseline, shapes=[(1, 0.5), (1, 0.5), (1, 1)])
    assert " ".join(str(plan).split()).count(said) == 1
    assert not any("repeats" in str(plan) for plan in plans.values())


def test_the_table_shows_each_batch_shape_with_its_lr(plans: dict[str, Plan]) -> None:
    row = next(line for line in str(plans["kinetics_slowfast_8x8_r50"]).splitlines() if "cycle 1, T/2·S " in line)
    assert row.split() == [
        *("cycle", "1,", "T/2·S", "25,682", "109.6", "16"),
        *("112", "158", "224", "512", "256", "128", "32", "16", "8", "0.2", "1.00"),
    ]


def test_the_summary_compares_with_the_baseline_in_words(kinetics: Baseline, plans: dict[str, Plan]) -> None:
    assert summary(multigrid(kinetics)) == (
        "261,792 steps, 86,040,256 samples (358.5 epochs): 3.42× fewer steps, 3.43× less work than the "
        "baseline's 896,250 steps of 64×32×224²"
    )
    assert "the same number of steps, 1.60× less work than the baseline's" in summary(plans["reds_edvr_m"])


@pytest.mark.parametrize(
    ("steps", "work", "words"),
    [
        (2.0, 4.0, "2.00× fewer steps, 4.00× less work than"),
        (8.0, 1.0, "8.00× fewer steps, the same work as"),
        (8.0, 0.5, "8.00× fewer steps, 2.00× more work than"),
        (1.0, 1.6, "the same number of steps, 1.60× less work than"),
        (1.0, 1.004, "the same number of steps, the same work as"),
        (1.0, 0.5, "the same number of steps, 2.00× more work than"),
        (0.5, 2.0, "2.00× more steps, 2.00× less work than"),
        (0.5, 1.0, "2.00× more steps, the same work as"),
        (0.25, 0.5, "4.00× more steps, 2.00× more work than"),
    ],
)
def test_the_summary_compares_steps_and_work_each_by_itself(steps: float, work: float, words: str) -> None:
    plan = cascade(Baseline(batch=8, frames=8, size=32, clips=100, steps=4000, lr=0.1))
    baseline = plan.baseline.with_(steps=round(len(plan) * steps))
    plan = replace(plan, baseline=baseline)
    full = plan.stages[-1].steps
    coarse = (baseline.total_steps / work - full) / (len(plan) - full)  # what a coarse step costs
    said = summary(plan, lambda cell: 1.0 if cell == plan.baseline_shape else coarse)
    assert f": {words} the baseline's {baseline.total_steps:,} steps of 8×8×32²" in said


def test_a_value_that_the_whole_short_cycle_has_is_shown_once() -> None:
    baseline = Baseline(batch=8, frames=8, size=64, clips=800, epochs=20, lr=0.1)
    plan = multigrid(baseline, long_shapes=[(1, 0.5), (1, 1)], short_sizes=[Fraction(1, 4)])
    coarse, fine = str(plan).splitlines()[4:6]  # the short cycle's S/2 is the coarse shape itself
    assert coarse.split() == ["cycle", "1,", "T·S/2", "126", "0", "8", "32", "32", "8", "0.4", "1.00"]
    assert fine.split()[5:] == ["8", "32", "64", "32", "8", "32", "8", "0.1", "1.00"]


@pytest.mark.parametrize("name", ["kinetics_slowfast_8x8_r50", "reds_basicvsr_m", "vimeo_basicvsr"])
def test_nothing_in_the_figure_is_clipped(plans: dict[str, Plan], name: str) -> None:
    figure = plans[name].figure()
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    for text in [*figure.texts, *(axis.title for axis in figure.axes), *(a._left_title for a in figure.axes)]:
        box = text.get_window_extent(canvas.get_renderer())
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.width
        assert box.y1 <= figure.bbox.height


def test_the_short_cycle_is_a_band_around_the_base_shape(kinetics: Baseline) -> None:
    cycled, still = multigrid(kinetics).figure(lambda cell: 1.0), multigrid(kinetics, short_sizes=()).figure()
    assert cycled.get_suptitle() == "long+short: 3.42× fewer steps, 3.42× less work"  # every step costs the same
    assert cycled.axes[0].get_title(loc="left") == (
        "261,792 steps, 86,040,256 samples (358.5 epochs); baseline 896,250 steps of 64×32×224²"
    )
    assert cycled.axes[-1].get_xlabel() == "samples seen (epochs)"
    assert cycled.axes[0].get_shared_x_axes().joined(cycled.axes[0], cycled.axes[-1])
    assert [len(axis.patches) for axis in cycled.axes] == [1, 2, 2, 1]  # frames, size, batch, LR
    assert [len(axis.patches) for axis in still.axes] == [1, 1, 1, 1]
    assert [label.get_text() for label in cycled.axes[1].get_yticklabels()] == ["112", "158", "224"]
    base, band = cycled.axes[1].patches
    assert base.get_data().values[:4].tolist() == [158, 158, 224, 224]
    assert band.get_data().values[:4].tolist() == [158, 158, 224, 224]
    assert band.get_data().baseline[:4].tolist() == [112] * 4
    assert band.get_data().edges.tolist() == base.get_data().edges.tolist()
    assert band.get_fill()
    assert band.get_facecolor()[:3] == to_rgba(color_of("long+short"))[:3]
    assert [text.get_text() for text in cycled.axes[1].get_legend().get_texts()] == ["base shape", "short cycle"]
    assert [figure.axes[k].get_legend() for figure, k in ((cycled, 0), (cycled, 2), (still, 1))] == [None] * 3
    of_two = multigrid(kinetics, short_sizes=[Fraction(1, 2)]).figure()  # shapes in a cycle
    assert len(of_two.axes[1].get_legend().get_texts()) == 2


def test_the_lr_of_a_long_stage_is_drawn_at_points_from_its_first_to_its_last_step() -> None:
    plan = constant(Baseline(batch=8, frames=8, size=32, clips=800, epochs=20, lr=0.1, decay=CosineDecay()))
    drawn = plan.figure().axes[-1].patches[0].get_data()
    assert (len(plan), len(drawn.values)) == (2000, 300)
    assert (drawn.edges[0], drawn.values[0]) == (0, plan[0].lr)
    assert (drawn.edges[-2], drawn.values[-1]) == (plan.epochs_before(1999), plan[1999].lr)


@pytest.mark.parametrize(
    ("values", "ticks", "scale"),
    [
        ([16], [16], "linear"),
        ([16, 8, 8], [8, 16], "linear"),
        ([4, 6, 10, 16], [4, 6, 10, 16], "linear"),
        ([4, 5, 6, 15, 16], [4, 6, 16], "linear"),  # 5 is too close to the first one, 15 to the last
        ([4, 16, 17], [4, 17], "log"),
        ([64, 1024, 128, 256, 512], [64, 128, 256, 512, 1024], "log"),
    ],
)
def test_ticks_are_values_that_occur_and_apart(values: list[int], ticks: list[int], scale: str) -> None:
    axis = new_figure().subplots()
    mark_values(axis, values)
    assert (axis.get_yticks().tolist(), axis.get_yscale()) == (ticks, scale)
    assert [text.get_text() for text in axis.get_yticklabels()] == [f"{tick:,}" for tick in ticks]
    low, high = axis.get_ylim()
    assert low < min(values) <= max(values) < high


def test_the_figure_draws_each_stage_over_its_epochs_in_the_color_of_the_plan() -> None:
    plan = cascade(Baseline(batch=8, frames=8, size=32, clips=100, epochs=10, lr=0.1))
    *shapes, lr = plan.figure().axes
    ends = [0, 5.12, 8, 9.28, 9.92]  # as in its table
    for axis, values in zip(shapes, ([4, 8, 8, 8], [16, 16, 23, 32], [64, 32, 16, 8]), strict=True):
        drawn = axis.patches[0].get_data()
        assert (drawn.values.tolist(), drawn.edges.tolist(), drawn.baseline) == (values, ends, None)
        assert axis.get_yticks().tolist() == sorted(set(values))
        assert axis.get_ylim()[0] < min(values) < max(values) < axis.get_ylim()[1]
    drawn = lr.patches[0].get_data()
    places = np.searchsorted(drawn.edges, [plan.epochs_before(step.index) for step in plan], side="right") - 1
    assert drawn.values[places].tolist() == [step.lr for step in plan]
    assert (drawn.edges[-1], drawn.baseline) == (9.92, None)
    for axis in (*shapes, lr):
        assert [line.get_xdata() for line in axis.lines] == [[edge, edge] for edge in ends[1:-1]]
        assert axis.get_xlim() == (0, 9.92)
        assert axis.patches[0].get_edgecolor() == to_rgba("#d55e00")
    assert [axis.get_yscale() for axis in (*shapes, lr)] == ["linear", "linear", "log", "linear"]
    assert [axis.get_ylim()[0] for axis in (*shapes[:2], lr)] == [0, 0, 0]


def test_the_lr_axis_is_logarithmic_where_stages_differ_widely(kinetics: Baseline, plans: dict[str, Plan]) -> None:
    dropped = constant(kinetics).figure().axes[3]  # from 0.1 to 0.0001
    assert dropped.get_yscale() == "log"
    assert 1e-5 < dropped.get_ylim()[0] < 1e-4 < 0.1 < dropped.get_ylim()[1] < 1
    assert plans["reds_basicvsr_m"].figure().axes[3].get_yscale() == "linear"
    assert constant(kinetics.with_(decay=CosineDecay())).figure().axes[3].get_yscale() == "linear"


def test_a_plan_prints_as_its_table() -> None:
    plan = cascade(Baseline(batch=8, frames=8, size=32, clips=100, epochs=10, lr=0.1))
    assert str(plan).splitlines() == [
        "plan cascade (89adf05e0b6a)",
        "",
        " stage    steps  epoch  frames  size  batch  BN   LR  work",
        " ─────────────────────────────────────────────────────────",
        " T/2·S/2      8      0       4    16     64   8  0.8  1.00",
        " T·S/2        9   5.12       8    16     32   8  0.4  1.00",
        " T·S/√2       8      8       8    23     16   8  0.2  1.03",
        " T·S          8   9.28       8    32      8   8  0.1  1.00",
        "",
        "33 steps, 992 samples (9.92 epochs): 3.79× fewer steps,",
        "3.76× less work than the baseline's 125 steps of 8×8×32²",
    ]
    assert f"{plan}" == str(plan)
    named = str(replace(plan, name="a plan of a long name " * 5)).splitlines()
    assert max(map(len, named)) == len(named[named.index("") + 2]) == 58  # as wide as the table
    assert repr(plan).startswith("Plan(name=")


def test_the_rows_of_a_plan_are_its_steps(plans: dict[str, Plan]) -> None:
    for plan in plans.values():
        shared = plan.baseline.roles
        for step, row in islice(zip(plan, plan.rows(), strict=True), 500):
            assert row == {
                "step": step.index,
                "epoch": plan.epochs_before(step.index),
                "stage": plan.stages[step.stage].name,
                "frames": step.shape.frames,
                "height": step.shape.height,
                "width": step.shape.width,
                "batch": step.batch,
                "bn_batch": step.bn_batch,
                "lr": step.lr,
                **{f"lr_{role}": step.lr_of(role) for role in sorted(shared)},
                "first_sample": step.samples.start,
                "samples": step.samples.stop,
            }
    assert any("lr_flow" in next(plan.rows()) for plan in plans.values())


def test_an_lr_curve_that_rises_and_falls_shows_its_peak() -> None:
    curve = CurveDecay(points=((0, 0), (0.25, 1), (1, 0)))
    plan = constant(Baseline(batch=8, frames=8, size=32, clips=100, epochs=10, lr=0.1, decay=curve))
    assert "0→0.1→0" in str(plan)
    plan.figure()
    rising = CurveDecay(points=((0, 0.1), (1, 1)))
    shown = [str(constant(plan.baseline.with_(decay=decay))).splitlines()[4] for decay in (rising, CosineDecay())]
    assert [line.split()[-2] for line in shown] == ["0.01→0.1", "0.1→0"]


def test_the_figure_has_a_row_for_tokens_and_names_six_of_many_batches() -> None:
    shapes = [(1, 1, tokens) for tokens in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1)]
    plan = cascade(Baseline(batch=8, frames=8, size=32, clips=800, epochs=10, lr=0.1), shapes=shapes)
    axes = plan.figure().axes
    assert [axis.get_ylabel() for axis in axes] == [
        "frames",
        "size (pixels)",
        "batch (clips)",
        "tokens (%)",
        "learning rate",
    ]
    assert [label.get_text() for label in axes[3].get_yticklabels()] == ["10", "20", "30", "40", "60", "100"]
