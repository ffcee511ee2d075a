"""PlanTrainer: what it refuses, what it logs, and models whose config has the shape of a clip."""

import re
from pathlib import Path

import pytest
import torch
from setups import plan_trainer
from yardstick import PLAN, Items, Trace, difference, make_net, make_optimizer

import vcycle
from vcycle.nn.weights.files import read_weights

transformers = pytest.importorskip("transformers", reason="it is not installed: pip install 'vcycle[transformers]'")

from vcycle.integrations.transformers import PlanTrainer

ROOT = Path(__file__).resolve().parents[2]


def refusal(trace, folder, **options):
    with pytest.raises(vcycle.VcycleError) as error:
        plan_trainer(trace, folder, **options).train()
    assert trace.lrs == []
    return str(error.value)


def test_another_object_in_place_of_the_plan_is_refused():
    said = r"^plan is int, not a vcycle\.Plan: the call is PlanTrainer\(model, args, plan=plan\)$"
    with pytest.raises(vcycle.PlanError, match=said):
        PlanTrainer(torch.nn.Linear(2, 2), plan=19)


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        (
            {"gradient_accumulation_steps": 2},
            "gradient_accumulation_steps=2: a plan's batches are whole, one per step; accepted: 1",
        ),
        (
            {"train_sampling_strategy": "group_by_length"},
            "train_sampling_strategy='group_by_length': the plan orders the clips; accepted: 'random'",
        ),
        (
            {"max_steps": 5},
            "max_steps=5: the plan is the training, and has 19 steps; accepted: leave it out. Baseline(steps=...) or "
            "epoch_factor sets the plan's length",
        ),
        ({"auto_find_batch_size": True}, "auto_find_batch_size=True: the plan has the batches; accepted: False"),
        (
            {"convert": False},
            "layer 'net.norm' is a BatchNorm3d without groups: it would normalise over whole batches of the plan, or "
            "over a rank's part of them. Call vcycle.convert_batchnorm(model) before the training, and leave out "
            "sync_batchnorm=True, which undoes it: ranks share groups where the plan requires it",
        ),
    ],
)
def test_arguments_that_contradict_the_plan_are_refused(trace, tmp_path, argument, said):
    assert refusal(trace, tmp_path, **argument) == said


def test_batchnorm_without_groups_is_refused_in_a_model_that_comes_in_evaluation_mode(trace, tmp_path):
    """As `from_pretrained` returns it; the Trainer puts it in training mode at each step."""
    trainer = plan_trainer(trace, tmp_path, convert=False)
    trainer.model.eval()
    with pytest.raises(vcycle.PlanError, match="is a BatchNorm3d without groups"):
        trainer.train()


def test_options_of_the_loader_precede_the_arguments(trace, reference, tmp_path):
    trainer = plan_trainer(trace, tmp_path, save_strategy="no")
    trainer.loader_options["seed"] = 1
    trainer.train()
    assert trace.shapes == reference.shapes
    assert trace.clips != reference.clips


def test_a_second_lr_schedule_is_refused(trace, tmp_path):
    optimizer = make_optimizer(make_net(trace), trace)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 19)
    said = refusal(trace, tmp_path, optimizers=(optimizer, scheduler))
    assert said.startswith("optimizers has the LR scheduler CosineAnnealingLR, but the plan is the LR schedule")


def test_a_model_that_cannot_drop_the_tokens_of_a_plan_is_refused(trace, tmp_path):
    trainer = plan_trainer(trace, tmp_path)
    trainer.plan = vcycle.constant(PLAN.baseline, shape=vcycle.Scale.of(1, 1, tokens=0.25))
    with pytest.raises(vcycle.PlanError, match="model 'Model' cannot drop tokens, and a step keeps 25 % of them"):
        trainer.train()
    assert trace.lrs == []


def test_a_checkpoint_of_another_plan_is_refused(trace, tmp_path):
    plan_trainer(trace, tmp_path, save_strategy="steps", save_steps=19).train()
    other = plan_trainer(Trace(), tmp_path, save_strategy="no")
    other.plan = vcycle.cascade(PLAN.baseline.with_(lr=0.2))
    with pytest.raises(vcycle.CheckpointError, match=f"plan {PLAN.fingerprint}, but this one has"):
        other.train(resume_from_checkpoint=True)


def test_workers_load_the_same_clips(trace, reference, processes, tmp_path):
    trainer = plan_trainer(trace, tmp_path, save_strategy="no", dataloader_num_workers=2)
    trainer.train()
    trace.weights = trainer.model.state_dict()
    assert trace.clips == reference.clips
    assert difference(trace, reference) == 0
    assert processes() == set()


def test_every_step_logs_the_lr_that_it_uses(trace, tmp_path):
    trainer = plan_trainer(trace, tmp_path, logging_steps=1, save_strategy="no")
    trainer.train()
    logged = [line["learning_rate"] for line in trainer.state.log_history if "learning_rate" in line]
    assert logged == [step.lr for step in PLAN] == trace.lrs


def test_samples_per_second_count_the_samples_of_the_plan(trace, tmp_path):
    trainer = plan_trainer(trace, tmp_path, save_strategy="no")
    metrics = trainer.train().metrics
    assert metrics["train_samples_per_second"] * metrics["train_runtime"] == pytest.approx(PLAN.samples, rel=0.05)


def test_a_training_may_be_repeated_and_evaluated_between(trace, reference, tmp_path):
    """Evaluation neither follows the plan nor weights its loss."""
    trainer = plan_trainer(trace, tmp_path, save_strategy="no", per_device_eval_batch_size=12)
    trainer.eval_dataset = Items()
    trainer.args.label_names = ["labels"]
    trainer.evaluate()
    trainer.train()
    trace.weights = trainer.model.state_dict()
    assert trace.clips == reference.clips
    assert difference(trace, reference) == 0
    trainer.train()
    assert trace.clips == 2 * reference.clips


def test_several_gpus_in_one_process_are_refused(trace, tmp_path, monkeypatch):
    monkeypatch.setattr(transformers.TrainingArguments, "n_gpu", property(lambda arguments: 2))
    said = refusal(trace, tmp_path)
    assert said.startswith("2 GPUs in one process split batches without regard to BatchNorm groups; accepted: one GPU")


class Small(Items):
    """Items of three channels."""

    def __getitem__(self, index):
        item = super().__getitem__(index)
        clip = item["pixel_values"]
        return {"pixel_values": torch.cat([clip, clip[:, :1]], dim=1), "labels": index % 4}


def timesformer():
    torch.manual_seed(0)
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.TimesformerConfig(image_size=16, patch_size=4, num_frames=8, num_labels=4, **small)
    return transformers.TimesformerForVideoClassification(config)


def test_timesformer_follows_the_shape_of_each_step(tmp_path):
    """It splits tokens by the frames and the side of its config: with others it computes something else, or fails."""
    plan = vcycle.cascade(PLAN.baseline.with_(epochs=3), shapes=[(0.5, 0.5), (1, 0.75), (1, 1)])
    model = timesformer()
    trainer = PlanTrainer(
        model,
        transformers.TrainingArguments(
            str(tmp_path), use_cpu=True, report_to="none", disable_tqdm=True, save_strategy="no", data_seed=0
        ),
        train_dataset=Small(),
        optimizers=(torch.optim.SGD(model.parameters(), lr=1.0), None),
        plan=plan,
    )
    trainer.args.max_grad_norm = 0.0
    trainer.train()

    own = vcycle.any_shape(timesformer())
    optimizer = torch.optim.SGD(own.parameters(), lr=1.0)
    for step, batch in vcycle.steps(Small(), plan, key="pixel_values", layout="TCHW"):
        vcycle.apply(step, own, optimizer, batch)
        own(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert {tuple(step.shape) for step in plan} == {(4, 8, 8), (8, 12, 12), (8, 16, 16)}
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), own.parameters(), strict=True))
    assert (model.config.num_frames, model.config.image_size) == (8, 16)  # as before, for evaluating and saving


def videomae():
    torch.manual_seed(0)
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.VideoMAEConfig(image_size=16, patch_size=4, num_frames=8, num_labels=4, **small)
    return transformers.VideoMAEForVideoClassification(config)


def test_videomae_resumes_with_the_weights_that_an_uninterrupted_training_has(tmp_path):
    """Its published files have other names for two biases than the model, which a resumed Trainer would leave out."""
    shapes = [(0.5, 0.5), (1, 1, 0.25), (1, 1)]
    plan = vcycle.cascade(PLAN.baseline.with_(epochs=3), shapes=shapes, frames_multiple=2, size_multiple=4)
    seen = []

    def trained(**options):
        arguments = transformers.TrainingArguments(
            str(tmp_path), save_steps=2, use_cpu=True, report_to="none", disable_tqdm=True
        )
        model = videomae()
        model.videomae.encoder.layer[0].register_forward_pre_hook(lambda _, args: seen.append(args[0].shape[1]))
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        PlanTrainer(model, arguments, train_dataset=Small(), optimizers=(optimizer, None), plan=plan).train(**options)
        return model.state_dict()

    whole = trained()
    # Tokens of 2×4² pixels, of which the second shape drops three quarters.
    assert seen == [{4: 2 * 2 * 2, 8: round(4 * 4 * 4 * step.tokens)}[step.shape.frames] for step in plan]
    assert set(seen) == {8, 16, 64}
    resumed = trained(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    read = transformers.VideoMAEForVideoClassification.from_pretrained(tmp_path / f"checkpoint-{len(plan)}")
    for weights in (resumed, read.state_dict()):
        assert all(torch.equal(weights[name], tensor) for name, tensor in whole.items())
    assert not torch.equal(whole["classifier.weight"], videomae().state_dict()["classifier.weight"])


def test_layer_wise_lr_decay_as_the_guide_has_it_follows_the_plan(tmp_path):
    page = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(import re\n.*?)```", page, re.DOTALL)
    plan = vcycle.constant(PLAN.baseline.with_(epochs=1, decay=vcycle.CosineDecay(), warmup=None))
    small = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.TimesformerConfig(image_size=16, patch_size=4, num_frames=8, num_labels=4, **small)
    model = transformers.TimesformerForVideoClassification(config)
    arguments = transformers.TrainingArguments(
        str(tmp_path), use_cpu=True, report_to="none", disable_tqdm=True, save_strategy="no"
    )
    given = {"model": model, "arguments": arguments, "dataset": Small(), "plan": plan}
    names = {"torch": torch, "PlanTrainer": PlanTrainer} | given
    exec(code, names)
    seen = []
    names["optimizer"].register_step_pre_hook(
        lambda optimizer, *_: seen.append([group["lr"] for group in optimizer.param_groups])
    )
    names["trainer"].train()
    factors = {
        "timesformer.embeddings.": 0.75**3,
        "timesformer.encoder.layer.0.": 0.75**2,
        "timesformer.encoder.layer.1.": 0.75,
        "timesformer.layernorm.": 1.0,
        "classifier.": 1.0,
    }
    scales = [next(f for start, f in factors.items() if name.startswith(start)) for name, _ in model.named_parameters()]
    assert seen == [[pytest.approx(step.lr * scale) for scale in scales] for step in plan]


def test_videomae_saved_as_the_guide_has_it_has_the_names_of_its_class(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "finetuning.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(from transformers import VideoMAEFor.*?)```", page, re.DOTALL)
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.VideoMAEConfig(image_size=16, patch_size=4, num_frames=4, num_labels=4, **small)
    saved = transformers.VideoMAEForVideoClassification(config)
    monkeypatch.chdir(tmp_path)
    saved.save_pretrained("videomae-base")
    assert any(name.endswith("q_bias") for name in read_weights(Path("videomae-base")).state)
    exec(code, {})
    own = read_weights(Path("videomae-own-names")).state
    assert own.keys() == saved.state_dict().keys()
    assert all(torch.equal(own[name], value) for name, value in saved.state_dict().items())
