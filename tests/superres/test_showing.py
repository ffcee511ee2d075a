"""The crop that shows what networks restore."""

from vcycle.tasks.superres.figures import restored_crops

QUICK = ("model.options.flow=none", "training.flow=null", "training.steps=4", "training.warmup=null")


def test_a_crop_is_shown_by_bicubic_by_each_network_and_as_it_is(make_training, tmp_path):
    training = make_training(*QUICK)
    training.run(tmp_path / "run")
    crops = restored_crops({"ours": tmp_path / "run"}, clip=1, side=24)
    assert [title.split(",")[0] for title, _ in crops] == ["bicubic", "ours", "truth"]
    assert all(title.endswith(" dB") for title, _ in crops[:-1])
    assert {pixels.shape for _, pixels in crops} == {(24, 24, 3)}
