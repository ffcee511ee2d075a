"""An update that is not finite is not made, counted, and named; many in a row end the run."""

import math

import pytest
import torch
from torch import nn

from vcycle.data.config import LoadingSection
from vcycle.errors import VcycleError
from vcycle.plan import Baseline, constant
from vcycle.train.callbacks import Callbacks
from vcycle.train.checkpoint import load_checkpoint
from vcycle.train.config import OptimizerSection, RunSection, TrainConfig
from vcycle.train.gradients import gradient_norm, step_if
from vcycle.train.run import RunFolder
from vcycle.train.trainer import fit
from vcycle.utils.jsonl import JsonLines

PLAN = constant(Baseline(batch=4, frames=4, size=8, clips=24, steps=40, lr=0.02, bn_batch=2))


class Spoilt:
    """Cross-entropy of clips that are spoilt at some steps: nothing but the step decides."""

    mixes = False

    def __init__(self, **spoilt):
        self.spoilt = {int(name.removeprefix("at_")): how for name, how in spoilt.items()}
        self.step = 0

    def loss(self, model, clips, labels, *, block):
        how = self.spoilt.get(self.step)
        x = clips.float().div(255).permute(0, 4, 1, 2, 3)
        loss = nn.functional.cross_entropy(model(x * math.nan if how == "input" else x), labels)
        if how == "gradient":
            # The square root has no slope at 0: 0 * inf.
            return loss + (0 * model.head.weight).sum().sqrt()
        return loss * how if isinstance(how, float) else loss

    def check(self, labels):
        pass

    def predict(self, model, clips):
        return model(clips.float().div(255).permute(0, 4, 1, 2, 3))


@pytest.fixture
def train(noise, brightness, tmp_path):
    """Trains a small model on noise, with a task that knows at which step it is."""

    def train(task, folder="run", on_step=lambda _: None, **more):
        settings = {key: more.pop(key) for key in ("bad_steps", "save_every") if key in more}
        torch.manual_seed(0)
        task.step = more.pop("start", 0)

        def follow(report):
            task.step = report.step.index + 1
            on_step(report)

        return fit(
            plan=PLAN,
            model=brightness(),
            dataset=noise,
            objective=task,
            config=TrainConfig(
                run=RunSection(device="cpu", **settings),
                loading=LoadingSection(workers=0),
                optimizer=OptimizerSection(**more.pop("optimizer", {})),
            ),
            run=RunFolder(tmp_path / folder),
            callbacks=Callbacks(on_step=follow, on_message=more.pop("on_message", lambda _: None)),
            **more,
        )

    return train


def lines_of(folder):
    return [line for line in JsonLines(RunFolder(folder).log).read() if line["event"] == "step"]


@pytest.mark.parametrize("how", [math.nan, math.inf, -math.inf, "input", "gradient"])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_nothing_is_learned_from_a_step_that_is_not_finite(train, tmp_path, how, optimizer):
    def stop(report):
        if report.step.index == 8:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        train(Spoilt(at_7=how), on_step=stop, save_every=1, optimizer={"name": optimizer})
    saved = tmp_path / "run" / "checkpoints"
    before, after = (load_checkpoint(saved / f"step-{steps:09d}.pt") for steps in (7, 8))
    assert (before.totals["skipped"], after.totals["skipped"]) == (0, 1)
    assert all(torch.equal(after.model[key], before.model[key]) for key in before.model)
    for key, state in before.optimizer["state"].items():
        for name, value in state.items():
            assert torch.equal(torch.as_tensor(after.optimizer["state"][key][name]), torch.as_tensor(value))


def test_it_is_counted_logged_with_its_samples_and_told_of(train, tmp_path):
    said = []
    fitted = train(Spoilt(at_7=math.nan, at_12="gradient"), on_message=said.append)
    lines = lines_of(tmp_path / "run")
    assert fitted.skipped == 2
    assert len(lines) == len(PLAN)
    assert [line["step"] for line in lines if "skipped" in line] == [7, 12]
    assert lines[7]["loss"] == "nan"
    assert isinstance(lines[12]["loss"], float)
    assert len(lines[7]["samples"]) == 4
    assert all(0 <= index < 24 for index in lines[7]["samples"])
    log = tmp_path / "run" / "log.jsonl"
    assert said == [
        f"the loss became nan at step 7 (LR 0.02, 4 clips of 4×8²): its update is skipped; its samples are in {log}",
        f"a gradient became nan or inf (loss {lines[12]['loss']:g}) at step 12 (LR 0.02, 4 clips of 4×8²): its update "
        f"is skipped; its samples are in {log}",
    ]


def test_only_so_many_in_a_row_are_skipped(train, tmp_path):
    often = Spoilt(**{f"at_{step}": math.nan for step in (3, 4, 6, 7, 9, 10, 11)})
    with pytest.raises(VcycleError) as caught:
        train(often, bad_steps=2)
    assert str(caught.value) == (
        "the loss became nan at step 11 (LR 0.02, 4 clips of 4×8²), as in the 2 before: lower training.lr or lengthen "
        f"training.warmup; the samples of each such step are in {tmp_path / 'run' / 'log.jsonl'}"
    )
    assert train(often, "patient", bad_steps=3).skipped == 7


def test_a_run_that_is_cut_among_them_goes_on_as_if_it_had_not_been(train, record_of, tmp_path):
    spoilt = {f"at_{step}": math.nan for step in (3, 8, 9, 10, 11)}

    def stop(report):
        if report.step.index == 11:
            raise InterruptedError

    train(Spoilt(**spoilt), "whole", bad_steps=4)
    with pytest.raises(InterruptedError):
        train(Spoilt(**spoilt), "cut", bad_steps=4, save_every=5, on_step=stop)
    train(Spoilt(**spoilt), "cut", bad_steps=4, start=10, resume=True)
    assert record_of(tmp_path / "cut") == record_of(tmp_path / "whole")
    # Those in a row are counted over the cut.
    with pytest.raises(InterruptedError):
        train(Spoilt(**spoilt), "strict", bad_steps=3, save_every=5, on_step=stop)
    with pytest.raises(VcycleError, match=r"at step 11 .*as in the 3 before"):
        train(Spoilt(**spoilt), "strict", bad_steps=3, start=10, resume=True)


def test_samples_are_named_where_the_dataset_has_names(train, noise, tmp_path, monkeypatch):
    monkeypatch.setattr(type(noise), "name", lambda self, index: f"noise/{index}.mp4", raising=False)
    train(Spoilt(at_3=math.nan))
    line = lines_of(tmp_path / "run")[3]
    assert line["names"] == [f"noise/{index}.mp4" for index in line["samples"]]


@pytest.mark.parametrize("value", [0.0, math.nan])
def test_a_fused_optimizer_is_told_on_the_device(value):
    """As on a GPU, where nobody waits for the answer: the step's own kernel decides."""
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([weight], lr=0.1, fused=True)
    weight.sum().backward()
    optimizer.step()
    before, state = weight.detach().clone(), {k: v.clone() for k, v in optimizer.state[weight].items()}
    loss = (weight * value).sum() + 0.0 * weight.sum()
    optimizer.zero_grad()
    loss.backward()
    kept = torch.isfinite(loss) & torch.isfinite(gradient_norm(optimizer))
    assert bool(kept) is math.isfinite(value)
    optimizer.found_inf = (~kept).float()  # a CPU is asked outright by `step_if`
    optimizer.step()
    del optimizer.found_inf
    assert torch.equal(weight, before) is not math.isfinite(value)
    same = all(torch.equal(state[key], optimizer.state[weight][key]) for key in state)
    assert same is not math.isfinite(value)


@pytest.mark.gpu
@pytest.mark.parametrize("fused", [False, True])
def test_on_a_gpu_nothing_is_learned_either(fused):
    weight = nn.Parameter(torch.ones(3, device="cuda"))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9, fused=fused)
    (weight * math.nan).sum().backward()
    step_if(torch.isfinite(gradient_norm(optimizer)), optimizer)
    assert torch.equal(weight, torch.ones(3, device="cuda"))
