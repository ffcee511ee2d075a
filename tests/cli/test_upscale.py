"""`vcycle upscale`: a real file in, a real file out."""

import json

import numpy as np
import pytest
import torch
from matplotlib.image import imread

from vcycle.cli.app import app
from vcycle.data.video import probe, read_frames
from vcycle.errors import DataError, VcycleError
from vcycle.tasks.superres.models.basicvsr.network import BasicVSR


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A network that has learnt nothing, and so enlarges by interpolation."""
    path = tmp_path_factory.mktemp("model") / "tiny.pth"
    torch.manual_seed(0)
    torch.save(BasicVSR(blocks=1, channels=8, head_channels=8).state_dict(), path)
    return path


@pytest.fixture(scope="module")
def video(digit_videos):
    return next(iter(sorted(digit_videos.rglob("*.mp4"))))


def upscale(*arguments):
    app(["upscale", *map(str, arguments)], standalone_mode=False)


def test_every_frame_is_restored_in_its_time(model, video, tmp_path, capsys):
    out = tmp_path / "out.mkv"
    upscale(model, video, "-o", out, "--chunk", 4, "--overlap", 2, "--compare", tmp_path / "pictures/c.png", "--json")
    said = json.loads(capsys.readouterr().out)
    before, after = probe(str(video)).info, probe(str(out)).info
    assert said == {
        "out": str(out),
        "frames": before.frames,
        "missing": 0,
        "width": 4 * before.width,
        "height": 4 * before.height,
    }
    assert (after.frames, after.height, after.width) == (before.frames, 4 * before.height, 4 * before.width)
    assert np.allclose(after.times - after.times[0], before.times - before.times[0], atol=1e-3)
    last = [before.frames - 1]
    small = read_frames(probe(str(video)), last).pixels[0].astype(float)
    large = read_frames(probe(str(out)), last).pixels[0].astype(float)
    averaged = large.reshape(before.height, 4, before.width, 4, 3).mean((1, 3))
    assert np.abs(averaged - small).mean() < 6
    assert imread(tmp_path / "pictures/c.png").shape[:2] == (4 * before.height, 8 * before.width)


def test_a_higher_crf_makes_a_smaller_file_and_17_is_the_default(model, video, tmp_path):
    sizes = []
    for crf, given in ((5, ["--crf", 5]), (17, []), (45, ["--crf", 45])):
        out = tmp_path / f"{crf}.mp4"
        upscale(model, video, "-o", out, *given)
        assert f" crf={crf}.0 ".encode() in out.read_bytes()  # x264 writes down its settings
        sizes.append(out.stat().st_size)
    assert sizes == sorted(sizes, reverse=True)


def test_what_cannot_be_is_refused_in_a_line(model, video, tmp_path):
    with pytest.raises(VcycleError, match="is the video itself"):
        upscale(model, video, "-o", video)
    with pytest.raises(VcycleError, match=r"--device 'tpu' is unknown: auto, cpu or cuda"):
        upscale(model, video, "-o", tmp_path / "x.mp4", "--device", "tpu")
    (tmp_path / "bad.mp4").write_bytes(b"no video")
    with pytest.raises(DataError, match=r"bad\.mp4"):
        upscale(model, tmp_path / "bad.mp4", "-o", tmp_path / "x.mp4")
    with pytest.raises(VcycleError, match=r"picture c\.doc cannot be written: a name that ends in"):
        upscale(model, video, "-o", tmp_path / "x.mp4", "--compare", "c.doc")
    with pytest.raises(DataError, match=r"accepted: \.mp4"):
        upscale(model, video, "-o", tmp_path / "x.gif")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.mp4"]


def test_output_that_is_not_numbers_ends_it_and_leaves_no_file(video, tmp_path):
    network = BasicVSR(blocks=1, channels=8, head_channels=8)
    for parameter in network.head.parameters():
        torch.nn.init.constant_(parameter, 1e30)  # of two layers in a row: whatever comes in, what comes out is none
    torch.save(network.state_dict(), tmp_path / "large.pth")
    with pytest.raises(DataError, match=rf"{video.name}: the network's output is not numbers: its weights are not, or"):
        upscale(tmp_path / "large.pth", video, "-o", tmp_path / "x.mp4")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["large.pth"]
