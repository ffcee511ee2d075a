"""FollowPlan: what it refuses, and what it gets right where the obvious ways go wrong without a word."""

import pytest
import torch
from setups import QUIET, lightning, lightning_module
from yardstick import PLAN, Clips, Trace, difference, make_optimizer

import vcycle

L = pytest.importorskip("lightning", reason="it is not installed: pip install 'vcycle[lightning]'")

from lightning.pytorch.callbacks import Callback, GradientAccumulationScheduler, LearningRateMonitor, ModelCheckpoint

from vcycle.integrations.lightning import FollowPlan

SHORT = vcycle.cascade(PLAN.baseline.with_(epochs=3))


def fit(module, follow, *, loader=None, ckpt_path=None, **options):
    options = {"max_epochs": 1, "callbacks": [follow]} | options
    trainer = L.Trainer(**(QUIET | options))
    trainer.fit(module, follow.loader(Clips()) if loader is None else loader, ckpt_path=ckpt_path)
    return trainer


def refusal(*arguments, **options):
    with pytest.raises(vcycle.VcycleError) as error:
        fit(*arguments, **options)
    return str(error.value)


def test_another_object_in_place_of_the_plan_is_refused():
    with pytest.raises(vcycle.PlanError, match=r"^plan is int, not a vcycle\.Plan: the call is FollowPlan\(plan\)$"):
        FollowPlan(19)


def test_gradient_accumulation_is_refused(trace):
    said = refusal(lightning_module(trace), FollowPlan(PLAN), accumulate_grad_batches=2)
    assert said == "accumulate_grad_batches=2: a plan's batches are whole, one per optimizer step; accepted: 1"
    assert trace.lrs == []


def test_gradient_accumulation_that_a_callback_begins_is_refused(trace):
    follow = FollowPlan(PLAN)
    said = refusal(lightning_module(trace), follow, callbacks=[GradientAccumulationScheduler({0: 2}), follow])
    assert said.startswith("the optimizer has taken 0 steps before batch 1")
    assert trace.lrs == []


def test_a_second_lr_schedule_is_refused(trace):
    module = lightning_module(trace)

    def configure_optimizers():
        optimizer = make_optimizer(module, trace)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 19)]

    module.configure_optimizers = configure_optimizers
    said = refusal(module, FollowPlan(PLAN))
    assert said.startswith("configure_optimizers returns the LR scheduler CosineAnnealingLR, but the plan is")
    assert trace.lrs == []


DROPPING = vcycle.cascade(PLAN.baseline.with_(epochs=3), shapes=[(1, 1, 0.25), (1, 1)])


def test_a_model_that_cannot_drop_the_tokens_of_a_plan_is_refused(trace):
    said = refusal(lightning_module(trace), FollowPlan(DROPPING))
    assert said.startswith("model 'Module' cannot drop tokens, and a step keeps 25 % of them; accepted: VideoMAE")
    assert trace.lrs == []


def test_each_step_sets_the_share_of_tokens_and_which_are_kept(trace):
    class Shares(Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            shares.append((pl_module.dropping.share, pl_module.dropping.first, pl_module.dropping.seed))

    shares, module, follow = [], lightning_module(trace), FollowPlan(DROPPING, seed=3)
    module.dropping = vcycle.nn.TokenDropping()
    fit(module, follow, callbacks=[Shares(), follow])
    assert [share for share, _, _ in shares] == [step.tokens for step in DROPPING]
    assert [rest for share, *rest in shares if share < 1] == [
        [step.first_sample, 3] for step in DROPPING if step.tokens < 1
    ]


def test_several_optimizers_are_refused(trace):
    module = lightning_module(trace)
    module.automatic_optimization = False
    module.configure_optimizers = lambda: [make_optimizer(module, trace), make_optimizer(module, trace)]
    assert refusal(module, FollowPlan(PLAN)) == "configure_optimizers returns 2 optimizers; accepted: one"


def test_batchnorm_without_groups_is_refused(trace):
    said = refusal(lightning_module(trace, convert=False), FollowPlan(PLAN))
    assert said.startswith("layer 'net.norm' is a BatchNorm3d without groups: it would normalise over whole batches")
    assert trace.lrs == []


def test_groups_that_sync_batchnorm_has_undone_are_refused(trace):
    """On GPUs `Trainer(sync_batchnorm=True)` calls this very function; on CPUs its layers cannot train."""
    module = lightning_module(trace)
    module = torch.nn.SyncBatchNorm.convert_sync_batchnorm(module)
    said = refusal(module, FollowPlan(PLAN))
    assert said.startswith("layer 'net.norm' is a SyncBatchNorm without groups")
    assert "leave out sync_batchnorm=True" in said


def test_frozen_batchnorm_needs_no_groups(trace):
    module = lightning_module(trace, convert=False)
    module.net.norm.eval()
    assert fit(module, FollowPlan(SHORT)).global_step == len(SHORT)


def test_a_loader_without_its_callback_is_refused(trace):
    said = refusal(lightning_module(trace), FollowPlan(PLAN), callbacks=[])
    assert said == "FollowPlan is not a callback of the Trainer; accepted: Trainer(callbacks=[follow, ...])"


def test_another_loader_is_refused_at_the_first_batch_of_another_shape(trace):
    loader = torch.utils.data.DataLoader(Clips(), batch_size=4)
    said = refusal(lightning_module(trace), FollowPlan(PLAN), loader=loader)
    assert said.startswith("the batch is not of step 0, which expects 32 clips of 4×8×8 (T×H×W)")


def test_a_checkpoint_of_another_plan_is_refused(trace, tmp_path):
    saving = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=3)
    follow = FollowPlan(PLAN)
    fit(lightning_module(trace), follow, callbacks=[follow, saving], enable_checkpointing=True, max_steps=3)
    said = refusal(lightning_module(trace), FollowPlan(SHORT), ckpt_path=tmp_path / "step=3.ckpt")
    ours, theirs = SHORT.fingerprint, PLAN.fingerprint
    assert said == f"the checkpoint is of a training with plan {theirs}, but this one has {ours} (cascade)"


def test_a_checkpoint_of_another_order_of_clips_is_refused(trace, tmp_path):
    saving = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=3)
    follow = FollowPlan(PLAN)
    fit(lightning_module(trace), follow, callbacks=[follow, saving], enable_checkpointing=True, max_steps=3)
    follow = FollowPlan(PLAN)
    options = {"loader": follow.loader(Clips(), seed=1), "ckpt_path": tmp_path / "step=3.ckpt"}
    assert "seed 0, but this loader has 1" in refusal(lightning_module(trace), follow, **options)


def test_learning_rate_monitor_logs_the_lr_of_each_step_wherever_it_stands(trace, tmp_path):
    logger = L.pytorch.loggers.CSVLogger(tmp_path, flush_logs_every_n_steps=1)
    follow = FollowPlan(PLAN)
    module = lightning_module(trace)
    callbacks = [LearningRateMonitor(logging_interval="step"), follow]
    fit(module, follow, callbacks=callbacks, logger=logger, log_every_n_steps=1)
    lines = [line.split(",") for line in (tmp_path / "lightning_logs/version_0/metrics.csv").read_text().split()]
    column = next(place for place, name in enumerate(lines[0]) if name.startswith("lr"))
    assert [float(line[column]) for line in lines[1:]] == pytest.approx([step.lr for step in PLAN], rel=1e-6)


def test_a_resume_is_exact_when_configure_optimizers_asks_for_the_length(trace, reference, tmp_path):
    """Lightning then calls `iter` on the loader before it restores the checkpoint."""
    lightning(tmp_path)
    module = lightning_module(trace)
    lengths = []

    def configure_optimizers():
        lengths.append(module.trainer.estimated_stepping_batches)
        return make_optimizer(module, trace)

    module.configure_optimizers = configure_optimizers
    fit(module, FollowPlan(PLAN), ckpt_path=tmp_path / "step=7.ckpt")
    trace.weights = module.net.state_dict()
    assert lengths == [len(PLAN)]
    assert trace.shapes == reference.shapes[7:]
    assert difference(trace, reference) == 0


def test_a_data_module_with_workers_resumes_exactly(trace, reference, processes, tmp_path):
    lightning(tmp_path)
    module, follow = lightning_module(trace), FollowPlan(PLAN)

    class Data(L.LightningDataModule):
        def train_dataloader(self):
            return follow.loader(Clips(), workers=2)

    trainer = L.Trainer(**QUIET, max_epochs=1, callbacks=[follow])
    trainer.fit(module, datamodule=Data(), ckpt_path=tmp_path / "step=7.ckpt")
    trace.weights = module.net.state_dict()
    assert trace.clips == reference.clips[7:]
    assert difference(trace, reference) == 0
    assert processes() == set()


@pytest.mark.parametrize("length", [{"max_epochs": -1}, {"max_epochs": 3}, {"max_epochs": -1, "max_steps": 19}])
def test_training_ends_with_the_plan_whatever_the_length_of_the_trainer(trace, reference, length):
    module = lightning_module(trace)
    assert fit(module, FollowPlan(PLAN), **length).global_step == len(PLAN)
    trace.weights = module.net.state_dict()
    assert difference(trace, reference) == 0


def test_a_finished_training_is_not_resumed(trace, tmp_path):
    lightning(tmp_path)
    trainer = fit(lightning_module(trace), FollowPlan(PLAN), ckpt_path=tmp_path / "step=19.ckpt", max_epochs=5)
    assert trainer.global_step == len(PLAN)
    assert trace.lrs == []


@pytest.mark.parametrize("stop", [{"max_epochs": -1, "max_steps": 7}, {"limit_train_batches": 7}])
def test_a_training_that_stopped_early_is_resumed_to_the_end_of_the_plan(trace, reference, tmp_path, stop):
    """Lightning counts the epoch as completed, and would train nothing."""
    fit(lightning_module(Trace()), FollowPlan(PLAN), **stop).save_checkpoint(tmp_path / "stopped.ckpt")
    module = lightning_module(trace)
    assert fit(module, FollowPlan(PLAN), ckpt_path=tmp_path / "stopped.ckpt").global_step == len(PLAN)
    trace.weights = module.net.state_dict()
    assert trace.clips == reference.clips[7:]
    assert difference(trace, reference) == 0


def validated(trace, folder, ckpt_path=None, callbacks=()):
    """Validates after every fifth step, and saves then."""
    follow = FollowPlan(PLAN)
    module = lightning_module(trace)
    module.validation_step = lambda batch, batch_idx: None
    saving = ModelCheckpoint(folder, filename="{step}", save_top_k=-1)
    validation = torch.utils.data.DataLoader(Clips(), batch_size=24)
    options = {"val_check_interval": 5, "enable_checkpointing": True, "callbacks": [*callbacks, saving, follow]}
    L.Trainer(**(QUIET | options), max_epochs=1).fit(module, follow.loader(Clips()), validation, ckpt_path=ckpt_path)
    trace.weights = module.net.state_dict()


def test_callbacks_before_it_see_committed_statistics_and_validation_changes_nothing(trace, reference, tmp_path):
    counts = []

    class Count(Callback):
        def on_train_batch_end(self, trainer, module, *_):
            counts.append(int(module.net.norm.num_batches_tracked))

    validated(trace, tmp_path, callbacks=[Count()])
    assert counts == list(range(1, len(PLAN) + 1))
    assert difference(trace, reference) == 0


def test_a_resume_from_a_checkpoint_of_a_validation_is_exact(trace, reference, tmp_path):
    validated(Trace(), tmp_path)
    validated(trace, tmp_path, tmp_path / "step=10.ckpt")
    assert trace.clips == reference.clips[10:]
    assert difference(trace, reference) == 0


def test_a_training_that_fails_leaves_the_statistics_of_the_step_before(trace):
    module = lightning_module(trace)
    training_step = module.training_step

    def fail(batch, batch_idx):
        loss = training_step(batch, batch_idx)
        if batch_idx == 4:
            raise RuntimeError("out of luck")
        return loss

    module.training_step = fail
    with pytest.raises(RuntimeError, match="out of luck"):
        fit(module, FollowPlan(PLAN))
    assert int(module.net.norm.num_batches_tracked) == 4
    module.net.norm(torch.rand(4, 6, 2, 2, 2))  # a forward outside is a step of its own again
    assert int(module.net.norm.num_batches_tracked) == 5
