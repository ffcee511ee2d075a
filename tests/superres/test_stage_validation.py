"""Validation at the shape of the stage just trained: the middle of each clip, as training at this shape takes it."""

import pytest
import torch

from vcycle.plan import Shape
from vcycle.tasks.superres.evaluate import measuring_of
from vcycle.tasks.superres.measuring import restore_each
from vcycle.train.run import RunFolder
from vcycle.utils.jsonl import JsonLines


def test_a_coarse_stage_is_evaluated_at_its_own_shape(make_training, tmp_path):
    training = make_training("run.validate_stage_shape=true", "run.validate_every=0.5", "training.clip_grad_norm=0.01")
    result = training.run(tmp_path)
    coarse = [point for point in result.curve if point.stage is not None]
    assert coarse
    assert {point.stage_shape for point in coarse} == {"2×8²"}
    for point in coarse:
        assert point.stage.samples == point.evaluation.samples
        assert point.stage.frames == 2 * point.stage.samples < point.evaluation.frames
        assert point.stage.psnr != point.evaluation.psnr
    lines = list(JsonLines(RunFolder(tmp_path).log).read())
    assert [line["val_stage"]["psnr"] for line in lines if "val_stage" in line] == [p.stage.psnr for p in coarse]
    assert all(line["grad_norm"] > 0 for line in lines if line["event"] == "step")


@pytest.mark.parametrize(
    ("shape", "mirrored"), [(Shape(2, 8, 10), False), (Shape(4, 8, 8), True), (Shape(99, 99, 8), False)]
)
def test_the_middle_of_a_clip_is_measured_at_both_resolutions_alike(make_training, shape, mirrored):
    training = make_training(f"sampling.mirrored={str(mirrored).lower()}")
    dataset, recipe = training.experiment.dataset("val"), training.recipe
    low = dataset.whole(0).lr
    frames = min(len(low), shape.frames // 2 if mirrored else shape.frames)
    height, width = min(low.shape[1], shape.height), min(low.shape[2], shape.width)
    first, top, left = (len(low) - frames) // 2, (low.shape[1] - height) // 2, (low.shape[2] - width) // 2
    seen = []

    class Nearest(torch.nn.Module):
        """Repeats pixels, and keeps what it was given."""

        window = None

        def outputs(self, frames):
            return range(frames)

        def forward(self, clips, *, mirrored=False):
            seen.append(clips)
            return clips.repeat_interleave(4, -1).repeat_interleave(4, -2)

    (measured,) = restore_each(
        Nearest(), dataset, [0], device=torch.device("cpu"), measuring=measuring_of(recipe), shape=shape
    )
    part = low[first : first + frames, top : top + height, left : left + width]
    torch.testing.assert_close(seen[0][0, :frames], part.movedim(-1, 1) / 255)
    assert measured.quality.frames == frames
