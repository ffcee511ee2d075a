"""`vcycle.load`: a trained model in Python gives what the commands print."""

import json

import numpy as np
import pytest
import torch

from vcycle import VcycleError, load
from vcycle.data.video import VideoError, probe, read_frames


@pytest.fixture(scope="module")
def loaded(trained):
    return load(trained[0], device="cpu")


def frames_in(path):
    index = probe(str(path))
    return read_frames(index, np.arange(index.info.frames)).pixels, index.info.fps


@pytest.mark.parametrize("views", [None, (3, 2)])
def test_predictions_are_those_of_the_command_to_the_last_digit(vcycle, trained, loaded, videos, views):
    files = sorted(videos.glob("val/*/*.mp4"))
    options = () if views is None else ("--views", f"{views[0]}x{views[1]}")
    printed = json.loads(vcycle("predict", trained[0], *files, *options, "--json").out)["videos"]
    found = loaded.predict(files, views=views)
    assert [dict(one.classes) for one in found] == [row["classes"] for row in printed]
    assert [one.source for one in found] == [row["video"] for row in printed]
    (row,) = json.loads(vcycle("predict", trained[0], files[0], *options, "--json").out)["videos"]
    one = loaded.predict(files[0], views=views)
    assert dict(one.classes) == row["classes"]
    assert list(one.classes) == [loaded.classes[place] for place in one.scores.argsort(descending=True)]
    assert float(one.scores.sum()) == pytest.approx(1)
    assert not loaded.model.training


def test_a_run_a_checkpoint_and_an_exported_file_are_the_same_model(vcycle, trained, loaded, videos, tmp_path):
    run, file = trained[0], tmp_path / "model.safetensors"
    assert vcycle("export", run, "-o", file).code == 0
    newest = max((run / "checkpoints").glob("step-*.pt"))
    video = sorted(videos.glob("val/*/*.mp4"))[1]
    for path in (str(run), newest, file):
        one = load(path, device="cpu")
        assert torch.equal(one.predict(video).scores, loaded.predict(video).scores)
        assert (one.classes, one.recipe.model.name) == (("left", "right"), "r3d_tiny")


@pytest.mark.parametrize("as_given", [np.asarray, torch.from_numpy, lambda frames: frames[:, :, ::-1][:, :, ::-1]])
def test_an_array_is_predicted_as_the_file_that_it_was_read_from(loaded, videos, as_given):
    file = sorted(videos.glob("val/*/*.mp4"))[2]
    frames, _ = frames_in(file)
    one = loaded.predict(as_given(frames))
    assert torch.equal(one.scores, loaded.predict(file).scores)
    assert one.source == "array 0"
    mixed = loaded.predict([file, frames, frames[0]], top=1)
    assert [found.source for found in mixed] == [str(file), "array 1", "array 2"]
    assert torch.equal(mixed[0].scores, mixed[1].scores)
    assert all(len(found.classes) == 1 for found in mixed)


def test_an_unreadable_file_is_an_error_alone_and_a_row_among_others(loaded, videos, tmp_path):
    bad, good = tmp_path / "page.mp4", sorted(videos.glob("val/*/*.mp4"))[0]
    bad.write_text("<html></html>")
    with pytest.raises(VideoError, match=r"page\.mp4: not a video"):
        loaded.predict(bad)
    one, other = loaded.predict([bad, good], workers=1)
    assert one.error == "not a video, or its header is damaged or missing"
    assert (one.scores, dict(one.classes), other.error) == (None, {}, None)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda model: model.predict(np.zeros((3, 4, 16, 16), np.uint8)), r"array 0: uint8 \(3, 4, 16, 16\): frames"),
        (lambda model: model.predict(torch.zeros(4, 16, 16, 3)), r"array 0: float32 \(4, 16, 16, 3\): frames are"),
        (lambda model: model.predict_windows(np.zeros((4, 16, 16, 3), np.uint8), window=1), "give its frame_rate"),
        (
            lambda model: model.predict_windows("a.mp4", window=0),
            "window=0, stride=0: both are seconds, at least 0.001",
        ),
        (lambda model: model.predict("a.mp4", views=(0, 1)), "evaluation.clips"),
        (lambda model: model.upscale(np.zeros((4, 16, 16, 3), np.uint8)), "does not enlarge videos"),
        (lambda _: load("no-such-run"), "no-such-run"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(loaded, use, message):
    with pytest.raises(VcycleError, match=message):
        use(loaded)


def test_a_device_that_is_not_there_is_named(trained):
    with pytest.raises(VcycleError, match=r"device='gpu': .*cpu, cuda or auto is accepted"):
        load(trained[0], device="gpu")
