"""What a step takes at every batch shape, and what plans are predicted to take."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

from vcycle.bench.memory import forget_peak, peak_bytes
from vcycle.bench.steps import ceiling, study
from vcycle.bench.steps.ceiling import peak_flops
from vcycle.bench.steps.loading import Stream
from vcycle.bench.steps.stepper import Parts, Run, Stepper
from vcycle.bench.steps.study import bench_steps
from vcycle.bench.steps.turns import Effort
from vcycle.bench.steps.work import step_flops
from vcycle.bench.steps.workload import workload_of
from vcycle.cli.app import app
from vcycle.data import Sample
from vcycle.errors import PlanError, VcycleError
from vcycle.nn import TokenDropping
from vcycle.plan import Baseline, BatchShape, constant
from vcycle.report.steps import plans_table, shapes_table, steps_figure, steps_notes
from vcycle.report.variants import variants_table
from vcycle.tasks.recipes import load_recipe
from vcycle.tasks.recognition.task import RECOGNITION
from vcycle.tasks.superres.task import SUPERRESOLUTION

QUICK = Effort(repeats=2, seconds=0.0)


@pytest.fixture
def recipe():
    return load_recipe("demo/digits", ["training.size=16", "training.frames=4", "training.batch=4", "run.device=cpu"])


@pytest.fixture
def workload(recipe):
    return workload_of(recipe, 12)


@pytest.fixture
def plans(recipe):
    return {name: RECOGNITION.plan(recipe, 1200, name) for name in ("constant", "long+short", "cascade")}


def milliseconds(shape):
    """What a step is made to take: one for every thousand voxels, and one more each."""
    return 1 + shape.voxels / 1000


class Steady:
    """Steps whose time is known."""

    device = torch.device("cpu")
    precision = "fp32"
    has_batchnorm = True
    wait = 0.0

    def __init__(self, workload, *_):
        self.config, self.taken = workload.config, []

    def make_ready(self, shape):
        pass

    def run(self, shape, steps, batches=None):
        waited = 0.0 if batches is None else self.wait
        for _ in range(steps if batches else 0):
            assert tuple(batches().clips.shape) == (shape.batch, *shape.shape, 3)
        seconds = 1e-3 * milliseconds(shape) + waited
        return Run(seconds, seconds / 2, seconds, waited, 64 << 20)

    def parts(self, shape):
        return Parts(1e-3, 2e-3, 1e-4)


@pytest.fixture
def steady(monkeypatch):
    """Steps whose time and work are known, and nothing measured."""
    monkeypatch.setattr(study, "Stepper", Steady)
    monkeypatch.setattr(study, "peak_flops", lambda *_: 1e12)
    monkeypatch.setattr(study, "step_flops", lambda _, shape: shape.voxels)
    return monkeypatch


BATCH_SHAPE = ("batch", "frames", "size", "bn_batch", "tokens")


def printed(*tables):
    """Tables as a terminal of 100 columns shows them."""
    from rich.console import Console

    console = Console(width=100, record=True)
    console.print(*tables)
    return console.export_text()


class Clips:
    """A dataset of nothing."""

    samples_grids = True

    def __len__(self):
        return 1200

    def __getitem__(self, request):
        clip = torch.zeros((*request.shape, 3), dtype=torch.uint8)
        return Sample(clip=clip, label=0, index=request.index, position=request.position)


class OneLayer(nn.Conv3d):
    """A convolution whose first numbers count as logits of 12 classes."""

    def forward(self, clips):
        return super().forward(clips).flatten(1)[:, :12]


def test_the_work_of_a_step_is_counted_forward_and_backward(workload):
    def build():
        return OneLayer(3, 8, 3, padding=1, bias=False)

    shape = constant(Baseline(batch=2, frames=4, size=16, clips=8, epochs=1, lr=0.1)).baseline_shape
    forward = 2 * 2 * 4 * 16 * 16 * 8 * 3 * 27
    # The first layer's input needs no gradient: forward, and the gradient of the weights.
    assert step_flops(replace(workload, build=build), shape) == 2 * forward


class OneAttention(nn.Module):
    """Attention over frames as tokens, of which training may drop some. No other layer has FLOPs."""

    def __init__(self):
        super().__init__()
        self.dropping = TokenDropping()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, clips):
        tokens = self.dropping(self.scale * clips.transpose(1, 2).flatten(2)).unsqueeze(1)
        return nn.functional.scaled_dot_product_attention(tokens, tokens, tokens).mean((1, 2))[:, :12]


@pytest.mark.parametrize(("share", "kept"), [(1.0, 16), (0.25, 4)])
def test_the_work_of_attention_is_counted_by_pairs_of_the_kept_tokens(workload, share, kept):
    """Per clip 4·n²·d: 2 per multiply-add of n² products with keys and as many sums of values, each of d numbers."""
    shape = BatchShape(frames=16, size=4, batch=3, bn_batch=1, tokens=share)
    forward = 3 * 4 * kept**2 * (3 * 4 * 4)
    # Backward, each of the two products has the gradients of both factors.
    assert step_flops(replace(workload, build=OneAttention), shape) == 3 * forward


def test_a_batch_that_training_computes_in_micro_batches_is_timed_in_them(workload, plans):
    seen = []

    class Counted(OneLayer):
        def forward(self, clips):
            seen.append(len(clips))
            return super().forward(clips)

    small = plans["constant"].baseline_shape
    whole = replace(workload, build=lambda: Counted(3, 12, 3, padding=1))
    Stepper(whole, plans["constant"], micro={small: 3}).run(small, 1)
    assert (small.batch, seen) == (4, [3, 1])


def test_the_fastest_arithmetic_is_measured():
    assert 1e8 < peak_flops(torch.device("cpu"), "fp32") < 1e15


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16])
def test_the_fastest_arithmetic_is_that_of_the_precision(monkeypatch, kind):
    name = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}[kind]
    seen = []
    monkeypatch.setattr(ceiling, "_SIDE", {"cpu": 8})
    monkeypatch.setattr(ceiling, "_SECONDS", 0.0)
    monkeypatch.setattr(torch, "mm", lambda first, second, *, out: seen.append((first.dtype, second.dtype, out.dtype)))
    peak_flops(torch.device("cpu"), name)
    assert set(seen) == {(kind, kind, kind)}


def test_the_peak_of_memory_is_that_since_it_was_forgotten():
    cpu = torch.device("cpu")
    forget_peak(cpu)
    before = peak_bytes(cpu)
    torch.ones(16 << 20)  # 64 MiB, and gone
    assert peak_bytes(cpu) - before > 32 << 20
    forget_peak(cpu)
    assert peak_bytes(cpu) - before < 32 << 20


@pytest.mark.usefixtures("steady")
def test_plans_are_put_together_from_their_steps(workload, plans):
    done = []
    found = bench_steps(workload, plans, effort=QUICK, progress=lambda *count: done.append(count))
    expected = {
        name: sum(1e-3 * (1 + step.batch * step.shape.voxels / 1000) for step in plan) for name, plan in plans.items()
    }
    for row in found["plans"]:
        name = row["plan"]
        assert row["steps"] == len(plans[name])
        assert row["seconds"]["median"] == pytest.approx(expected[name])
        assert row["cpu_seconds"]["median"] == pytest.approx(expected[name] / 2)
        assert row["speedup"]["median"] == pytest.approx(expected["constant"] / expected[name])
    shapes = {shape for plan in plans.values() for shape in plan.shapes}
    assert len(found["shapes"]) == len(shapes | {plans["constant"].baseline_shape})
    assert found["shapes"][0]["realised"]["median"] == 1
    assert [row["wait_ms"] for row in found["shapes"]] == [None] * len(found["shapes"])
    assert done[-1][0] == done[-1][1]


def test_what_comes_once_is_counted_once(workload, plans, steady):
    class Slow(Steady):
        def run(self, shape, steps, batches=None):
            self.taken.append(shape)
            run = super().run(shape, steps, batches)
            first = self.taken.count(shape) == 1
            return run._replace(seconds=run.seconds + 10 * first, cpu=run.cpu + 7 * first)

    steady.setattr(study, "Stepper", Slow)
    found = bench_steps(workload, plans, effort=QUICK)
    for row in found["plans"]:
        plan = plans[row["plan"]]
        steps = sum(count * 1e-3 * milliseconds(shape) for shape, count in plan.counts.items())
        assert row["seconds"]["median"] == pytest.approx(steps + 10 * len(plan.shapes))
        assert row["cpu_seconds"]["median"] == pytest.approx(steps / 2 + 7 * len(plan.shapes))


@pytest.mark.parametrize(("threads", "clock"), [(1, "processor"), (2, "wall-clock")])
def test_other_programs_do_not_bend_what_one_thread_is_shown_to_take(recipe, plans, steady, threads, clock):
    class Disturbed(Steady):
        def run(self, shape, steps, batches=None):
            self.taken.append(shape)
            run = super().run(shape, steps, batches)
            return run._replace(seconds=run.seconds * len(self.taken))

    steady.setattr(study, "Stepper", Disturbed)
    run = recipe.run.model_copy(update={"threads": threads})
    found = bench_steps(workload_of(recipe.model_copy(update={"run": run}), 12), plans, effort=QUICK)
    base = plans["constant"].baseline_shape
    expected = [
        milliseconds(base) / base.voxels / (milliseconds(shape) / shape.voxels)
        for shape in (BatchShape(**{key: row[key] for key in BATCH_SHAPE}) for row in found["shapes"])
    ]
    assert found["clock"] == clock
    assert [row["realised_cpu"]["median"] for row in found["shapes"]] == pytest.approx(expected)
    assert [row["realised"]["median"] for row in found["shapes"]] != pytest.approx(expected)
    ratios = [row["cpu_seconds"]["median"] / found["plans"][0]["cpu_seconds"]["median"] for row in found["plans"]]
    assert [1 / row["cpu_speedup"]["median"] for row in found["plans"]] == pytest.approx(ratios)
    shown = printed(shapes_table(found), plans_table(found))
    assert f"{clock} time" in shown
    processor = [f"{row['cpu_speedup']['median']:.2f}" for row in found["plans"]]
    assert all(text in shown for text in processor) == (clock == "processor")


def test_where_no_batchnorm_tells_them_apart_steps_are_timed_once(workload, plans, steady):
    grouped = bench_steps(workload, plans, effort=QUICK)
    steady.setattr(Steady, "has_batchnorm", False)
    found = bench_steps(workload, plans, effort=QUICK)
    shapes = [(row["batch"], row["frames"], row["size"]) for row in found["shapes"]]
    assert len(set(shapes)) == len(shapes) < len(grouped["shapes"])
    assert [row["seconds"] for row in found["plans"]] == [row["seconds"] for row in grouped["plans"]]


@pytest.mark.parametrize(("with_data", "share"), [(False, 1.0), (True, 1.0), (False, 0.25), (True, 0.25)])
@pytest.mark.usefixtures("steady")
def test_the_tables_of_a_large_network_fit_into_100_columns(with_data, share):
    recipe = load_recipe("kinetics/slowfast_8x8_r50")
    plans = {name: RECOGNITION.plan(recipe, None, name) for name in ("constant", "long+short", "control:long+short")}
    found = bench_steps(workload_of(recipe, 400), plans, effort=QUICK)
    for row in found["shapes"]:
        wide = {"median": 99999.0, "low": 88888.0, "high": 111111.0}
        row.update(loaded_ms=wide, loaded_cpu_ms=wide, wait_ms=wide, memory_mib=123456, bound_by="memory, overhead")
        row.update(realised={"median": 1.11, "low": 0.99, "high": 1.22}, tokens=share)
        row["realised_cpu"] = row["realised"]
    found["workers"] = 8 if with_data else None
    shown = printed(shapes_table(found))
    assert sum("1.11 (0.99 to 1.22)" in line for line in shown.splitlines()) == len(found["shapes"])
    assert sum("control:long+short" in line for line in printed(plans_table(found)).splitlines()) == 1
    ways = printed(variants_table([found, found | {"compiled": True}]))
    assert sum("1.11 (0.99 to 1.22)" in line for line in ways.splitlines()) == len(found["shapes"])
    four = printed(variants_table([found, found | {"compiled": True}] * 2))
    assert sum("1.11" in line for line in four.splitlines()) == len(found["shapes"])


def test_a_frozen_backbone_has_no_gradients_to_compute(recipe, plans):
    frozen = load_recipe(
        "demo/digits", ["training.size=16", "training.frames=4", "training.freeze=backbone", "run.device=cpu"]
    )
    shape = plans["constant"].baseline_shape
    whole, part = (step_flops(workload_of(each, 12), shape) for each in (recipe, frozen))
    assert 0.3 < part / whole < 0.4  # forward alone


def test_with_data_a_step_takes_as_long_as_it_does_with_its_loader(workload, plans, steady):
    steady.setattr(Steady, "wait", 0.5)
    found = bench_steps(workload, plans, effort=QUICK, dataset=Clips())
    assert {row["bound_by"] for row in found["shapes"]} == {"data"}
    assert {row["wait_ms"]["median"] for row in found["shapes"]} == {500}
    for row in found["plans"]:
        plan = plans[row["plan"]]
        steps = sum(count * (0.5 + 1e-3 * milliseconds(shape)) for shape, count in plan.counts.items())
        assert row["seconds"]["median"] == pytest.approx(steps + found["begin_seconds"])


def test_a_shape_that_does_not_fit_is_named_with_the_remedy(workload, plans, steady):
    class Full(Steady):
        def run(self, shape, steps, batches=None):
            raise torch.OutOfMemoryError("CUDA out of memory")

    steady.setattr(study, "Stepper", Full)
    with pytest.raises(VcycleError, match=r"out of memory at .*×16²: a smaller training\.batch makes"):
        bench_steps(workload, plans, effort=QUICK)


def test_turns_come_from_one_loading_each_shape_after_what_was_loaded_ahead(workload, plans):
    small, large = plans["cascade"].shapes[0], plans["constant"].baseline_shape
    config = replace(workload.config, loading=workload.config.loading.model_copy(update={"prefetch": 10}))
    with Stream(Clips(), plans["constant"], {small: 2, large: 1}, 2, config, pin=False) as stream:
        assert stream.begin_seconds > 0
        assert stream.lead == 3 + 3  # 3 batches of 4 at the large shape, and so of the small one
        for _ in range(2):
            for shape, steps in ((small, 2), (large, 1)):
                for _ in range(stream.lead + steps):
                    assert len(stream.next().clips) == shape.batch
        with pytest.raises(StopIteration):
            stream.next()


def test_super_resolution_steps_are_measured_by_the_same_means():
    recipe = load_recipe("reds/basicvsr_m", ["model.options.channels=4", "training.size=32", "training.frames=6"])
    workload = workload_of(recipe, 0)
    shape = BatchShape(batch=1, frames=2, size=32, bn_batch=1)
    stepper = Stepper(workload, SUPERRESOLUTION.plan(recipe, 240, "hierarchical"))
    assert stepper.run(shape, 1).seconds > 0
    assert min(stepper.parts(shape)) > 0
    longer = replace(shape, frames=4)
    assert step_flops(workload, longer) > 1.9 * step_flops(workload, shape)


SMALL = ["training.size=16", "training.frames=4", "training.batch=4", "plans.long+short.cycles=1", "run.device=cpu"]


def test_the_command_times_real_steps_and_shows_them(capsys, tmp_path):
    arguments = ["bench", "demo/digits", *SMALL, "--plans", "long+short,cascade", "--repeats", "2", "--seconds", "0"]
    app([*arguments, "--figure", str(tmp_path / "steps.png"), "--json"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    assert (tmp_path / "steps.png").stat().st_size > 10_000
    names = [row["plan"] for row in found["plans"]]
    assert names[0] == "constant"
    assert {"long+short", "cascade"} <= set(names)
    for row in found["shapes"]:
        assert row["step_ms"]["low"] <= row["step_ms"]["median"] <= row["step_ms"]["high"]
        assert min(row["parts_ms"].values()) > 0
        assert row["memory_mib"] > 50
    from rich.console import Console

    console = Console(width=200, record=True)
    console.print(shapes_table(found), plans_table(found), *steps_notes(found))
    shown = console.export_text()
    for words in ("4×4×16²", "realised / work", "faster than constant", "GFLOP/s", "long+short"):
        assert words in shown
    assert len(steps_figure(found, "x").axes) == 3


def test_the_command_loads_the_data_itself_where_it_is_told_to(capsys, digit_videos):
    recipe = ["bench", "demo/digits", "data.digits=null", "data.cache=null", f"data={digit_videos}", *SMALL]
    app([*recipe, "--plans", "cascade", "--data", "--repeats", "1", "--seconds", "0", "--json"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    assert found["workers"] == 0
    for row in found["shapes"]:
        assert 0 < row["wait_ms"]["median"] < row["loaded_ms"]["median"]
    assert "waiting" in {str(column.header) for column in shapes_table(found).columns}
    figure = steps_figure(found, "x")
    figure.draw_without_rendering()
    for axis, words in zip(figure.axes, ("realised", "wall-clock time", f"{found['clock']} time"), strict=True):
        assert words in axis.get_xlabel()
        assert axis.xaxis.label.get_window_extent().x1 <= figure.bbox.x1


def test_a_plan_that_cannot_be_is_left_out_unless_it_was_asked_for(capsys):
    recipe = ["bench", "demo/digits", *SMALL, "model=slowfast_tiny", "--repeats", "1", "--seconds", "0"]
    app([*recipe, "plan=cascade", "--json"], standalone_mode=False)
    told = capsys.readouterr()
    assert "skipped: plan 'long+short'" in told.err
    names = [row["plan"] for row in json.loads(told.out)["plans"]]
    assert names == ["constant", "short", "control:short", "cascade", "control:cascade"]
    with pytest.raises(PlanError, match="cannot take the shape"):
        app([*recipe, "--plans", "long+short"], standalone_mode=False)
