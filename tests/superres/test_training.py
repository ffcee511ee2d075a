"""A training of super-resolution: one that is killed is the one that was not; what is frozen stays as it was."""

import math
import multiprocessing
import os
import signal

import numpy as np
import pytest
import torch

from vcycle.data import loader
from vcycle.errors import CheckpointError, VcycleError
from vcycle.runs.evaluate import validator
from vcycle.tasks.superres.init_weights import build_model
from vcycle.tasks.superres.notices import check_clips
from vcycle.train.config import EmaSpec
from vcycle.train.ema import Ema
from vcycle.train.ranks import SINGLE_PROCESS, Ranks
from vcycle.train.run import RunFolder
from vcycle.utils.jsonl import JsonLines

WITHOUT_FLOW = ("model.options.flow=none", "training.flow=null")


@pytest.fixture(scope="module")
def training(make_training):
    return make_training()


@pytest.fixture(scope="module")
def quick(make_training):
    """The same without a flow network, which is most of the work at this size."""
    return make_training(*WITHOUT_FLOW)


@pytest.fixture(scope="module")
def states():
    """What the run that is never interrupted has learned after each step: weights and state of the optimizer."""
    return {}


@pytest.fixture(scope="module")
def whole(training, record_of, newest, states, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")

    def keep(report):
        if report.step.index:
            states[report.step.index] = newest(folder)  # after so many steps

    training.run(folder, on_step=keep)
    states[len(training.plan)] = newest(folder)
    return record_of(folder)


def test_trying_every_shape_first_changes_nothing(make_training, whole, record_of, tmp_path):
    make_training("run.fit=always").run(tmp_path)
    assert RunFolder(tmp_path).fit.exists()
    assert record_of(tmp_path) == whole


def test_the_plan_has_a_freeze_a_warm_up_and_a_stage_edge(training):
    plan = training.plan
    assert [(stage.steps, stage.base.size, stage.base.batch) for stage in plan.stages] == [(4, 8, 2), (4, 16, 2)]
    assert [step.lr_of("flow") for step in plan][:3] == [0, 0, 0]
    assert [step.lr_of("flow") / step.lr for step in plan][3:] == [0.125] * 5
    assert [step.lr for step in plan][:2] == [0.002, pytest.approx(0.004, rel=0.05)]


@pytest.mark.forked
@pytest.mark.parametrize(
    "step",
    [
        pytest.param(2, id="before the flow network learns"),
        pytest.param(3, id="where it begins to learn"),
        pytest.param(4, id="at the stage edge"),
        pytest.param(5, id="after the stage edge"),
    ],
)
def test_a_run_killed_in_a_step_goes_on_as_if_it_had_not_been(training, whole, record_of, tmp_path, step):
    def die(report):
        if report.step.index == step:
            os.kill(os.getpid(), signal.SIGKILL)

    process = multiprocessing.get_context("fork").Process(
        target=training.run, args=(tmp_path,), kwargs={"on_step": die}
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    training.run(tmp_path, resume=True)
    assert record_of(tmp_path) == whole


def test_the_flow_network_is_unchanged_to_the_last_bit_until_it_learns(training, whole, states):
    drawn = build_model(training.recipe).state_dict()
    for done in range(1, 9):
        state = states[done].model
        same = [torch.equal(state[key], drawn[key]) for key in drawn if key.startswith("flow.levels")]
        assert all(same) if done <= 3 else not any(same)
        # The last layer begins at 0: what lies before it learns from the second step on.
        assert torch.equal(state["fusion.weight"], drawn["fusion.weight"]) is (done == 1)


def test_adam_knows_nothing_of_the_steps_in_which_the_flow_network_was_frozen(training, whole, states):
    counts = {done: {int(s["step"]) for s in states[done].optimizer["state"].values()} for done in (3, 4, 8)}
    assert counts == {3: {3}, 4: {1, 4}, 8: {5, 8}}


def test_the_average_looks_back_over_samples_and_is_what_is_evaluated(training, whole, states):
    key = "head.last.weight"
    expected = build_model(training.recipe).state_dict()[key]
    for done in range(1, 9):
        expected = expected.lerp(states[done].model[key], 1 - 0.9**2)  # two clips a step, 0.9 is stated for one
        assert torch.allclose(states[done].averaged[key], expected, rtol=1e-6, atol=1e-9)
    assert states[8].weights is states[8].averaged


def test_the_average_is_given_back_and_has_the_models_own_names(quick, newest, tmp_path):
    fitted = quick.run(tmp_path)
    averaged = newest(tmp_path).averaged
    assert set(averaged) == set(fitted.model.state_dict())
    assert all(torch.equal(value, averaged[key]) for key, value in fitted.model.state_dict().items())


def test_an_average_keeps_buffers_as_they_are_and_gives_no_gradients():
    torch.manual_seed(0)
    model = torch.nn.BatchNorm1d(2)
    ema = Ema(model, EmaSpec(decay=0.5, clips=4))
    model(torch.randn(8, 2)).sum().backward()
    with torch.no_grad():
        model.weight.add_(1)
    ema.update(model, 4)
    assert torch.equal(ema.model.running_mean, model.running_mean)
    assert ema.model.weight.tolist() == [1.5, 1.5]
    assert not any(parameter.requires_grad for parameter in ema.model.parameters())


def test_a_run_with_an_average_is_not_resumed_without(quick, make_training, tmp_path):
    quick.run(tmp_path)
    without = make_training(*WITHOUT_FLOW, "training.ema=null")
    with pytest.raises(CheckpointError, match=r"was started with training\.ema 0\.9, not null: resume with"):
        without.run(tmp_path, resume=True)


def test_the_number_of_workers_changes_nothing(quick, make_training, record_of, tmp_path):
    runs = []
    for workers, training in ((0, quick), (2, make_training(*WITHOUT_FLOW, "data.workers=2"))):
        training.run(tmp_path / str(workers))
        runs.append(record_of(tmp_path / str(workers)))
    assert runs[0] == runs[1]


def test_each_step_trains_on_pairs_of_its_shape(quick):
    for step, batch in zip(quick.plan, loader(quick.experiment.dataset("train"), quick.plan), strict=True):
        assert tuple(batch.clips.shape) == (2, 2, step.shape.size, step.shape.size, 3)
        assert tuple(batch.labels.shape) == (2, 2, 4 * step.shape.size, 4 * step.shape.size, 3)


def test_training_restores_more_than_the_enlarged_frames(make_training, tmp_path):
    longer = ("training.steps=160", "training.lr=0.005", "run.save_every=100", "run.validate_every=100")
    training = make_training(*WITHOUT_FLOW, *longer)
    told = []
    evaluator = training.experiment.evaluator("val", "validation")
    evaluate = validator(evaluator, ranks=SINGLE_PROCESS, on_progress=lambda *done: told.append(done))
    enlarged = evaluate(build_model(training.recipe), torch.device("cpu"))
    assert told == [("restoring frames", done, 10) for done in (0, 5, 10)]
    fitted = training.run(tmp_path)
    assert fitted.curve[-1].evaluation.psnr > enlarged.psnr + 0.1
    assert fitted.curve[-1].evaluation.samples == 2


def test_a_picture_is_a_clip_of_one_frame_and_black_ones_are_learned_from(write_png, make_training, tmp_path):
    draws = np.random.default_rng(0)
    for split, count in (("train", 2), ("val", 2)):
        for number in range(count):
            shape = (38, 45, 3)  # no multiple of the scale, and 9 × 11 at low resolution
            picture = draws.integers(256, size=shape) if number else np.zeros(shape)
            write_png(tmp_path / "clips" / split / f"{split}{number}" / "0.png", picture.astype(np.uint8))
    sizes = ("training.frames=1", "training.size=8", "plans.spatial.sizes=[5, 8]")
    training = make_training(*WITHOUT_FLOW, *sizes, f"data={tmp_path / 'clips'}")
    assert check_clips(training.recipe, training.clips) == []
    quality = training.run(tmp_path / "run").curve[-1].evaluation
    assert (quality.samples, quality.frames) == (2, 2)
    assert math.isfinite(quality.psnr)
    lines = [line for line in JsonLines(RunFolder(tmp_path / "run").log).read() if line["event"] == "step"]
    assert all(math.isfinite(line["loss"]) for line in lines)


def test_an_unreadable_clip_is_replaced_counted_and_named(clips, make_clip, make_training, tmp_path):
    import shutil

    shutil.copytree(clips, tmp_path / "clips")
    bad = tmp_path / "clips" / "train" / "train1"
    (bad / "00000002.png").write_bytes(b"no picture")
    training = make_training(*WITHOUT_FLOW, f"data={tmp_path / 'clips'}", "run.bad_limit=1", "training.frames=4")
    said = []
    fitted = training.run(tmp_path / "run", on_message=said.append)
    assert fitted.replaced > 0
    assert sum(str(bad) in line for line in said) == 1
    lines = list(JsonLines(RunFolder(tmp_path / "run").bad_samples).read())
    assert len(lines) == fitted.replaced


def train_as_rank(rank, world, training, folder):
    return training.run(folder, ranks=Ranks(rank=rank, world=world)).curve[-1].evaluation


def test_two_ranks_go_through_the_freeze_and_two_shapes_and_learn_what_one_does(
    make_training, on_ranks, newest, tmp_path
):
    training = make_training("plans.spatial.sizes=[8, 12, 16]", "training.steps=12", "run.save_every=100")
    assert [stage.base.size for stage in training.plan.stages] == [8, 12, 16]
    assert {step.lr_of("flow") > 0 for step in training.plan} == {False, True}
    alone = training.run(tmp_path / "alone").curve[-1].evaluation
    first, second = on_ranks(2, train_as_rank, training, tmp_path / "two")
    assert first == second
    assert first.psnr == pytest.approx(alone.psnr, abs=1e-3)
    learned, expected = newest(tmp_path / "two"), newest(tmp_path / "alone")
    for found, wanted in ((learned.model, expected.model), (learned.averaged, expected.averaged)):
        assert all((found[key] - value).abs().max() < 1e-4 for key, value in wanted.items())
    drawn = build_model(training.recipe).state_dict()
    assert not torch.equal(learned.model["flow.levels.0.0.weight"], drawn["flow.levels.0.0.weight"])
    steps = [line for line in JsonLines(RunFolder(tmp_path / "two").log).read() if line["event"] == "step"]
    same = [line for line in JsonLines(RunFolder(tmp_path / "alone").log).read() if line["event"] == "step"]
    assert [(line["ids_crc32"], line["lr"]) for line in steps] == [(line["ids_crc32"], line["lr"]) for line in same]


def test_offsets_that_diverge_stop_the_run_and_name_the_step(make_training, tmp_path, monkeypatch):
    pytest.importorskip("torchvision")
    from vcycle.tasks.superres.models import deform

    # So low a limit stands for offsets that run away, which takes thousands of steps.
    monkeypatch.setattr(deform, "OFFSET_LIMIT", 1e-9)
    training = make_training(
        "model=edvr_m_wotsa",
        "model.options={window: 3, channels: 8, groups: 2, front_blocks: 1, back_blocks: 1, head_channels: 4}",
        *("training.flow=null", "training.frames=3", "training.size=16"),
    )
    with pytest.raises(VcycleError, match=r"offsets became \S+ at step \d, above 1e-09 \(LR .*lower training\.lr"):
        training.run(tmp_path)
    lines = [line for line in JsonLines(RunFolder(tmp_path).log).read() if line["event"] == "step"]
    assert lines[0]["offsets"] == 0
