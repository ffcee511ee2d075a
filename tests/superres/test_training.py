"""A training of super-resolution: one that is killed is the one that was not; what is frozen stays as it was."""

import multiprocessing
import os
import signal

import pytest
import torch

from vcycle.data import loader
from vcycle.errors import CheckpointError, VcycleError
from vcycle.recipes.superres.build import build_model, dataset_of
from vcycle.train.ema import Ema, EmaSpec
from vcycle.train.run import JsonLines, RunFolder

forked = pytest.mark.skipif(
    torch.cuda.is_available(), reason="with a GPU, autograd keeps threads that do not survive a fork"
)

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


def test_the_plan_has_a_freeze_a_warm_up_and_a_stage_edge(training):
    plan = training.plan
    assert [(stage.steps, stage.base.size, stage.base.batch) for stage in plan.stages] == [(4, 8, 2), (4, 16, 2)]
    assert [step.lr_of("flow") for step in plan][:3] == [0, 0, 0]
    assert [step.lr_of("flow") / step.lr for step in plan][3:] == [0.125] * 5
    assert [step.lr for step in plan][:2] == [0.002, pytest.approx(0.004, rel=0.05)]


@forked
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
    drawn = build_model(training.recipe, 0).state_dict()
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
    expected = build_model(training.recipe, 0).state_dict()[key]
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


def test_a_run_with_an_average_does_not_go_on_without(quick, make_training, tmp_path):
    quick.run(tmp_path)
    without = make_training(*WITHOUT_FLOW, "training.ema=null")
    with pytest.raises(CheckpointError, match=r"made with an average of the weights, this recipe trains without one"):
        without.run(tmp_path, resume=True)


def test_the_number_of_workers_changes_nothing(quick, make_training, record_of, tmp_path):
    runs = []
    for workers, training in ((0, quick), (2, make_training(*WITHOUT_FLOW, "data.workers=2"))):
        training.run(tmp_path / str(workers))
        runs.append(record_of(tmp_path / str(workers)))
    assert runs[0] == runs[1]


def test_each_step_trains_on_pairs_of_its_shape(quick):
    dataset = dataset_of(quick.recipe, quick.clips.train)
    for step, batch in zip(quick.plan, loader(dataset, quick.plan), strict=True):
        assert tuple(batch.lr.shape) == (2, 2, step.shape.size, step.shape.size, 3)
        assert tuple(batch.hr.shape) == (2, 2, 4 * step.shape.size, 4 * step.shape.size, 3)


def test_training_restores_more_than_the_enlarged_frames(make_training, tmp_path):
    from vcycle.recipes.superres.evaluating import evaluator

    longer = ("training.steps=160", "training.lr=0.005", "run.save_every=100", "run.validate_every=100")
    training = make_training(*WITHOUT_FLOW, *longer)
    evaluate = evaluator(training.recipe, dataset_of(training.recipe, training.clips.val))
    enlarged = evaluate(build_model(training.recipe, 0), torch.device("cpu"))
    fitted = training.run(tmp_path)
    assert fitted.curve[-1].evaluation.psnr > enlarged.psnr + 0.2
    assert fitted.curve[-1].evaluation.samples == 2


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


def train_in_a_group(training, plan, rank, world, store, results):
    """A user's own loop on two ranks, with DistributedDataParallel as it is by default."""
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

    from vcycle.nn import apply
    from vcycle.nn.models.superres.roles import role_by_name
    from vcycle.tasks.superres import Restoration
    from vcycle.train.optimizer import OptimizerSpec

    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    model = build_model(training.recipe, 0)
    optimizer = OptimizerSpec(name="adam", betas=(0.9, 0.99)).build(model, role_by_name(["flow"]))
    shared, task = DistributedDataParallel(model), Restoration()
    batches = loader(dataset_of(training.recipe, training.clips.train), plan, rank=rank, world=world)
    for step, batch in zip(plan, batches, strict=True):
        apply(step, model, optimizer)
        task.loss(shared, batch.lr, batch.hr).backward()
        optimizer.step()
        optimizer.zero_grad()
    results.put((rank, {key: value.numpy().copy() for key, value in model.state_dict().items()}))
    results.close()
    results.join_thread()
    distributed.destroy_process_group()


@forked
def test_two_ranks_go_through_the_freeze_and_two_shapes_and_learn_what_one_does(make_training, tmp_path):
    training = make_training("plans.spatial.sizes=[8, 12, 16]", "training.steps=12", "training.ema=null")
    plan = training.plan
    assert [stage.base.size for stage in plan.stages] == [8, 12, 16]
    context = multiprocessing.get_context("fork")
    found = {}
    for world in (1, 2):
        results = context.Queue()
        ranks = [
            context.Process(
                target=train_in_a_group, args=(training, plan, rank, world, tmp_path / f"store{world}", results)
            )
            for rank in range(world)
        ]
        for process in ranks:
            process.start()
        found[world] = dict(results.get(timeout=90) for _ in ranks)
        for process in ranks:
            process.join()
    alone, (first, second) = found[1][0], (found[2][0], found[2][1])
    drawn = build_model(training.recipe, 0).state_dict()
    for key, value in alone.items():
        assert (first[key] == second[key]).all()
        assert abs(first[key] - value).max() < 1e-4
    assert not (first["flow.levels.0.0.weight"] == drawn["flow.levels.0.0.weight"].numpy()).all()


def test_offsets_that_diverge_stop_the_run_and_name_the_step(make_training, tmp_path, monkeypatch):
    pytest.importorskip("torchvision")
    from vcycle.recipes.superres import build

    # So low a limit stands for offsets that run away, which takes thousands of steps.
    monkeypatch.setattr(build, "OFFSET_LIMIT", 1e-9)
    training = make_training(
        "model=edvr_m_wotsa",
        "model.options={window: 3, channels: 8, groups: 2, front_blocks: 1, back_blocks: 1, head_channels: 4}",
        *("training.flow=null", "training.frames=3", "training.size=16"),
    )
    with pytest.raises(VcycleError, match=r"offsets became \S+ at step \d, above 1e-09 \(LR .*lower training\.lr"):
        training.run(tmp_path)
    lines = [line for line in JsonLines(RunFolder(tmp_path).log).read() if line["event"] == "step"]
    assert lines[0]["offsets"] == 0
