"""Validation at the shape of the stage just trained: the middle of each clip, as training at this shape takes it."""

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


def test_the_middle_is_cut_at_both_resolutions_alike(make_training):
    import torch
    from vcycle.tasks.superres.build import dataset_of

    from vcycle.plan import Shape
    from vcycle.tasks.superres.measuring import _middle

    training = make_training()
    pair = dataset_of(training.recipe, training.clips.val).whole(0)
    cut = _middle(pair, Shape(2, 8, 10), mirrored=False)
    frames, height, width = pair.lr.shape[:3]
    top, left, first = (height - 8) // 2, (width - 10) // 2, (frames - 2) // 2
    assert torch.equal(cut.lr, pair.lr[first : first + 2, top : top + 8, left : left + 10])
    assert torch.equal(cut.hr, pair.hr[first : first + 2, 4 * top : 4 * top + 32, 4 * left : 4 * left + 40])
    assert _middle(pair, Shape(4, 8, 8), mirrored=True).lr.shape[0] == 2
    assert _middle(pair, Shape(400, 800, 8), mirrored=False).lr.shape[:2] == (frames, height)
