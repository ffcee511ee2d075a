"""MMEngine's Runner follows a plan as the plain loop does (`examples/mmengine_hook.py`)."""

import importlib.util
import logging
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

import vcycle

pytest.importorskip("mmengine", reason="mmengine is not installed: pip install mmengine")
EXAMPLE = Path(__file__).parents[1] / "examples" / "mmengine_hook.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("mmengine_hook", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    logging.disable(logging.WARNING)
    yield module
    logging.disable(logging.NOTSET)


@pytest.fixture
def build(example, tmp_path, request, monkeypatch):
    """Builds a Runner in a folder of the test."""
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")  # MMEngine's checkpoints hold its log

    def build(plan, **changes):
        name = f"{request.node.name}{len(built)}"
        built.append(name)
        return example.runner(plan, tmp_path, experiment_name=name, log_level="ERROR", **changes)

    built = []
    return build


@pytest.fixture(scope="module")
def plan():
    return vcycle.cascade(vcycle.Baseline(batch=4, frames=8, size=16, clips=24, steps=20, lr=0.1))


@pytest.fixture(scope="module")
def plain(example, plan):
    """The weights that the plain loop trains."""
    torch.manual_seed(0)
    model = vcycle.convert_batchnorm(example.Classifier())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step, batch in vcycle.steps(example.Clips(), plan, key="inputs"):
        vcycle.apply(step, model, optimizer, batch["inputs"])
        with vcycle.one_step(model, vcycle.BatchPartition.of(step)):
            cross_entropy(model(batch["inputs"]), batch["labels"]).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.state_dict()


def assert_equal(runner, weights):
    trained = runner.model.state_dict()
    assert trained.keys() == weights.keys()
    assert [key for key in weights if not torch.equal(trained[key], weights[key])] == []


def test_the_runner_trains_the_weights_of_the_plain_loop(build, example, plan, plain):
    seen = []

    class Watch(example.Hook):
        def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
            lr = runner.message_hub.get_scalar("train/lr").current()
            seen.append((lr, tuple(data_batch["inputs"].shape)))

    hooks = [example.FollowPlan(plan, key="inputs"), Watch()]
    runner = build(plan, custom_hooks=hooks)
    runner.train()
    assert_equal(runner, plain)
    assert seen == [(step.lr, (step.batch, 3, step.shape.frames, step.shape.height, step.shape.width)) for step in plan]


@pytest.mark.parametrize("stop", [1, 4])
def test_a_resumed_training_has_the_same_weights(build, plan, plain, tmp_path, example, stop):
    class Stop(example.Hook):
        priority = "LOWEST"

        def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
            runner.train_loop.stop_training = batch_idx + 1 == stop

    build(plan, custom_hooks=[example.FollowPlan(plan, key="inputs"), Stop()]).train()
    resumed = build(plan, resume=True, load_from=str(tmp_path / f"iter_{stop}.pth"))
    resumed.train()
    assert_equal(resumed, plain)


def test_what_a_plan_excludes_is_refused(build, plan, example):
    refused = {
        "max_iters": {"train_cfg": {"type": "IterBasedTrainLoop", "max_iters": 3}},
        "param_scheduler": {"param_scheduler": {"type": "LinearLR", "start_factor": 0.1, "by_epoch": False}},
        "accumulative_counts": {"optim_wrapper": {"optimizer": {"type": "SGD", "lr": 0.1}, "accumulative_counts": 2}},
    }
    for name, changes in refused.items():
        with pytest.raises(vcycle.PlanError, match=name):
            build(plan, **changes).train()


def test_a_checkpoint_of_another_plan_is_refused(build, plan, tmp_path):
    build(plan).train()
    other = vcycle.constant(vcycle.Baseline(batch=4, frames=8, size=16, clips=24, steps=20, lr=0.1))
    with pytest.raises(vcycle.CheckpointError, match=r"not of"):
        build(other, resume=True, load_from=str(tmp_path / f"iter_{len(plan)}.pth")).train()
