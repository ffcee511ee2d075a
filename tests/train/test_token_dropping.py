"""A training that drops tokens: resumed, in micro-batches and on several ranks it keeps the same ones."""

from contextlib import suppress

import numpy as np
import pytest
import torch
from torch import nn

from vcycle.data.config import LoadingSection
from vcycle.errors import PlanError, VcycleError
from vcycle.nn import TokenDropping
from vcycle.plan import Baseline, cascade
from vcycle.tasks.recognition import Recognition
from vcycle.train.callbacks import Callbacks
from vcycle.train.checkpoint import latest_checkpoint
from vcycle.train.config import OptimizerSection, RunSection, TrainConfig
from vcycle.train.probe import probe
from vcycle.train.ranks import SINGLE_PROCESS, Ranks
from vcycle.train.run import RunFolder
from vcycle.train.speed import Speed
from vcycle.train.trainer import fit
from vcycle.utils.jsonl import JsonLines

PLAN = cascade(
    Baseline(batch=3, frames=4, size=8, clips=24, steps=24, lr=0.02, bn_batch=2),
    shapes=[(1, 1, 0.25), (1, 1, 0.5), (1, 1)],
)
"""Batches of 12, 6 and 3 clips, of which 4, 8 and 16 tokens are kept."""
TOKENS = 16


class Transformer(nn.Module):
    """One block of attention over all tokens of a clip, in double precision; remembers which it has attended to."""

    def __init__(self, limit=100):
        super().__init__()
        self.limit, self.seen = limit, []
        self.patches = nn.Conv3d(3, 8, (1, 4, 4), stride=(1, 4, 4))
        self.positions = nn.Parameter(torch.randn(1, TOKENS, 8))
        self.dropping = TokenDropping()
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 4)
        self.double()

    def forward(self, clips):
        if len(clips) > self.limit:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        x = self.dropping(self.patches(clips.double()).flatten(2).transpose(1, 2) + self.positions)
        kept = self.dropping.kept
        self.seen.append((x.shape[1], [] if kept is None else kept.tolist()))
        return self.head(self.block(x).mean(1))


class Precisely(Recognition):
    """The task with its loss in double precision."""

    def loss(self, model, clips, labels, *, block=None):
        return nn.functional.cross_entropy(model(self.inputs(clips)), labels)


def train(folder, noise, *, model=None, until=None, resume=False, ranks=SINGLE_PROCESS, fits="never", plan=PLAN):
    """Train; returns the model."""
    torch.manual_seed(0)
    model = model or Transformer()

    def stop(report):
        if report.step.index + 1 == until:
            raise InterruptedError

    with suppress(InterruptedError):
        fit(
            plan=plan,
            model=model,
            dataset=noise,
            objective=Precisely(classes=4),
            config=TrainConfig(
                run=RunSection(device="cpu", save_every=1, fit=fits, seed=5),
                loading=LoadingSection(workers=0),
                optimizer=OptimizerSection(),
            ),
            run=RunFolder(folder),
            callbacks=Callbacks(on_step=stop),
            resume=resume,
            ranks=ranks,
        )
    return model


def learned(folder):
    """The lines of a run's steps in its log, and its last weights."""
    lines = [line for line in JsonLines(RunFolder(folder).log).read() if line["event"] == "step"]
    weights = latest_checkpoint(RunFolder(folder).checkpoints)[0].model
    return lines, {name: value.numpy() for name, value in weights.items()}


def assert_learned(folder, expected, atol=1e-9):
    """A run has learned what another has."""
    (lines, weights), (lines_expected, weights_expected) = learned(folder), expected
    losses, losses_expected = ([line["loss"] for line in each] for each in (lines, lines_expected))
    np.testing.assert_allclose(losses, losses_expected, rtol=0, atol=atol)
    for name, value in weights_expected.items():
        np.testing.assert_allclose(weights[name], value, rtol=0, atol=atol, err_msg=name)


@pytest.fixture(scope="module")
def whole(noise, tmp_path_factory):
    """A training in one go: its model, and what it has learned."""
    folder = tmp_path_factory.mktemp("whole")
    return train(folder, noise), learned(folder)


def test_the_blocks_get_the_share_of_tokens_of_each_step_and_each_clip_its_own(whole):
    model, _ = whole
    assert [count for count, _ in model.seen] == [round(TOKENS * step.tokens) for step in PLAN]
    assert {count for count, _ in model.seen} == {4, 8, 16}
    rows = [tuple(row) for count, kept in model.seen if count == 4 for row in kept]
    assert len(rows) == sum(step.batch for step in PLAN if step.tokens == 0.25)
    assert len(set(rows)) > len(rows) - 5


def test_the_log_has_the_share_of_steps_that_drop_tokens(whole):
    _, (lines, _) = whole
    assert [line.get("tokens", 1) for line in lines] == [step.tokens for step in PLAN]


def test_a_training_cut_after_every_step_keeps_the_same_tokens_to_the_last_bit(whole, noise, tmp_path):
    model, expected = whole
    seen = []
    for done in range(1, len(PLAN) + 1):
        seen += train(tmp_path, noise, until=done, resume=done > 1).seen
    train(tmp_path, noise, resume=True)
    # A step whose checkpoint was not yet saved is taken again.
    assert [each for place, each in enumerate(seen) if each not in seen[:place]] == [
        each for place, each in enumerate(model.seen) if each not in model.seen[:place]
    ]
    assert_learned(tmp_path, expected, atol=0)


def test_micro_batches_keep_the_tokens_of_the_whole_batch(whole, noise, tmp_path):
    model, expected = whole
    parted = train(tmp_path, noise, model=Transformer(limit=4), fits="always")
    counts = [(count, len(kept)) for count, kept in parted.seen]
    assert (4, 4) in counts
    joined = [row for _, kept in parted.seen[-sum(-(-step.batch // 4) for step in PLAN) :] for row in kept]
    assert joined == [row for _, kept in model.seen for row in kept]
    assert_learned(tmp_path, expected)


def _train_on_ranks(rank, world, noise, folder):
    train(folder, noise, ranks=Ranks(rank=rank, world=world))


def test_two_ranks_learn_what_one_process_learns(on_ranks, whole, noise, tmp_path):
    on_ranks(2, _train_on_ranks, noise, tmp_path / "run")
    assert_learned(tmp_path / "run", whole[1])


def test_a_network_that_cannot_drop_tokens_is_refused_before_the_first_step(noise, brightness, tmp_path):
    with pytest.raises(PlanError, match="model 'Brightness' cannot drop tokens, and a step keeps 25 % of them"):
        train(tmp_path, noise, model=brightness())
    assert latest_checkpoint(RunFolder(tmp_path).checkpoints) is None


def test_graphs_are_refused():
    with pytest.raises(VcycleError, match=r"run\.graphs is true, but the plan drops other tokens at each step"):
        Speed(graphs=True).refuse(torch.device("cuda"), world=1, mixes=False, drops=True)


def test_every_share_is_tried_before_training_whichever_plan_comes_first():
    constant = cascade(PLAN.baseline, shapes=[(1, 1)])
    for plans in ((constant, PLAN), (PLAN, constant)):
        model = Transformer()
        config = TrainConfig(
            run=RunSection(device="cpu"), loading=LoadingSection(workers=0), optimizer=OptimizerSection()
        )
        probe(config, lambda model=model: model, Precisely(classes=4), plans)
        assert sorted(count for count, _ in model.seen) == [4, 8, 16, 16]  # and once in evaluation
