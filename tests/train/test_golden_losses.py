"""Training gives the losses that it gave before: every step of one seeded run of each task, on one thread.

The values are the losses before the 2026-11 redesign, commit dae2984, which the redesigned code repeats bit for bit on
the same machine. Learning rates are small: at those of the recipes, what another processor rounds otherwise grows to
0.1 % within ten steps, and here stays below 1e-6.
"""

import json
from pathlib import Path

import pytest

from vcycle.runs.experiment import Experiment
from vcycle.runs.train import train
from vcycle.tasks.recipes import load_recipe
from vcycle.tasks.superres.pairs.photographs import PhotographSettings, render_photographs
from vcycle.train.run import RunFolder

NEAR = 2e-5
"""Twenty times what other instructions and two threads change, and half of what a learning rate 5 % higher does."""

DIGITS = (
    "plan=long+short",
    "data.digits.clips={train: 8, val: 2, test: 1}",
    "data.digits.size=40",
    "data.digits.digit_size=24",
    "data.cache=40",
    "training.size=32",
    "training.epochs=6",
    "training.lr=0.002",
    "training.decay={law: steps, milestones: [2.3, 3.8, 4.9], gamma: 0.1}",
    "training.warmup={length: 0.65, start_lr: 0.0005}",
    "run.device=cpu",
    "run.validate_every=100",
)
"""14 stages of two or one steps, with up to three batch shapes each."""

DIGITS_LOSSES = [
    2.485570192337036,
    2.486908197402954,
    2.484072208404541,
    2.4884283542633057,
    2.4803972244262695,
    2.4904561042785645,
    2.4903676509857178,
    2.484443187713623,
    2.479508638381958,
    2.4831695556640625,
    2.4811532497406006,
    2.4784157276153564,
    2.483468770980835,
    2.479783535003662,
    2.4889771938323975,
    2.4853057861328125,
    2.484984874725342,
    2.4863336086273193,
    2.4752848148345947,
    2.4687564373016357,
    2.5093817710876465,
]

PHOTOGRAPHS = PhotographSettings(clips={"train": 4, "val": 2, "test": 1}, frames=12, size=144)

SUPERRESOLUTION = (
    "data.epoch=16",
    "training.steps=24",
    "training.batch=2",
    "training.frames=6",
    "training.size=16",
    "training.lr=2.0e-4",
    "training.warmup.steps=4",
    "plans.hierarchical={sizes: [8, 16], frames: [3, 6]}",
    "run.validate_every=100",
)

SUPERRESOLUTION_LOSSES = [
    0.12508372962474823,
    0.12811768054962158,
    0.11146846413612366,
    0.10503879189491272,
    0.11705517768859863,
    0.10322389006614685,
    0.11200371384620667,
    0.10782074928283691,
    0.11701597273349762,
    0.10374847054481506,
    0.12317916005849838,
    0.10645362734794617,
    0.1151650995016098,
    0.10532370954751968,
    0.11700410395860672,
    0.10454151779413223,
    0.118992380797863,
    0.11157000064849854,
    0.10547085851430893,
    0.11986616253852844,
    0.10965745151042938,
    0.10905175656080246,
    0.12761400640010834,
    0.10432257503271103,
]


def trained(folder: Path, recipe: str, overrides: tuple[str, ...]) -> tuple[list[float], dict[str, float]]:
    """The loss of every step and the last evaluation, from the log of a run."""
    experiment = Experiment(load_recipe(recipe, ["data.workers=0", *overrides]), folder)
    run = RunFolder(folder / "run")
    train(experiment, experiment.plan(), run)
    lines = [json.loads(line) for line in run.log.read_text().splitlines()]
    losses = [line["loss"] for line in lines if line["event"] == "step"]
    return losses, [line["evaluation"] for line in lines if line["event"] == "validation"][-1]


def test_recognition_repeats_its_losses(tmp_path):
    losses, evaluation = trained(tmp_path, "demo/digits", DIGITS)
    assert losses == pytest.approx(DIGITS_LOSSES, rel=NEAR)
    assert evaluation["samples"] == 24
    assert evaluation["loss"] == pytest.approx(2.489725529279624, rel=NEAR)


def test_superresolution_repeats_its_losses(tmp_path):
    clips = render_photographs(tmp_path / "photographs", PHOTOGRAPHS)
    losses, evaluation = trained(tmp_path, "demo/superresolution", (f"data={clips}", *SUPERRESOLUTION))
    assert losses == pytest.approx(SUPERRESOLUTION_LOSSES, rel=NEAR)
    assert evaluation["psnr"] == pytest.approx(23.84153795625769, rel=NEAR)
    assert evaluation["ssim"] == pytest.approx(0.6319398498373268, rel=NEAR)
