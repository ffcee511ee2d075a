"""The sources of docs/decoders.md decode what our own source decodes, and name a video that they cannot read."""

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch

import vcycle
from vcycle.data import FileSource, VideoDataset, VideoError, VideoList, read_videos

PAGE = Path(__file__).parents[2] / "docs" / "decoders.md"


def classes_of_page(heading: str) -> dict[str, Any]:
    """What the code under a heading defines."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    names: dict[str, Any] = {}
    exec(re.search(r"```python\n(.*?)```", section, re.DOTALL)[1], names)  # type: ignore[index]
    return names


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory, write_video: Callable[..., Path]) -> VideoList:
    """Six videos of numbered pictures, and one that is none."""
    root = tmp_path_factory.mktemp("decoders")
    for number in range(6):
        write_video(root / f"train/{'ab'[number % 2]}/{number}.mp4", 20 + number, options={"crf": "8"})
    (root / "train/a/none.mp4").write_bytes(b"no video at all")
    return read_videos(root, "train")


@pytest.fixture(params=["TorchCodec", "decord", "Hugging Face datasets"])
def source(request: pytest.FixtureRequest, videos: VideoList) -> Any:
    """A source of the page."""
    if request.param == "TorchCodec":
        _has("torchcodec.decoders")
        return classes_of_page("TorchCodec")["TorchCodecSource"](videos)
    if request.param == "decord":
        _has("decord")
        return classes_of_page("decord")["DecordSource"](videos)
    _has("datasets")
    _has("torchcodec.decoders")
    return classes_of_page(request.param)["RowsSource"](rows_of(videos))


def _has(module: str) -> None:
    try:
        library = __import__(module, fromlist=["VideoDecoder"])
        if module == "torchcodec.decoders":  # it loads FFmpeg's libraries on the first use
            library.VideoDecoder(str(PAGE))
    except (ImportError, RuntimeError) as error:
        said = str(error)
        if "libtorchcodec" in said or isinstance(error, ImportError):
            pytest.skip(f"{module} cannot be imported: {said.splitlines()[0]}")
    except ValueError:  # it has looked at the page, which is no video
        pass


def rows_of(videos: VideoList) -> Any:
    """A dataset of rows with the videos."""
    import datasets

    paths = [str(videos.path(item)) for item in range(len(videos))]
    label = datasets.ClassLabel(names=list(videos.classes))
    features = datasets.Features({"video": datasets.Video(), "label": label})
    return datasets.Dataset.from_dict({"video": paths, "label": list(videos.labels)}, features=features)


def test_a_source_of_the_page_decodes_what_ours_does(
    source: Any, videos: VideoList, read_number: Callable[..., int]
) -> None:
    ours = FileSource(videos)
    frames = np.array([0, 7, 7, 13, 19, 2])
    for item in (1, 4):
        assert source.info(item).frames == ours.info(item).frames
        assert (source.info(item).height, source.info(item).width) == (48, 64)
        assert source.info(item).duration == pytest.approx(ours.info(item).duration)
        place = {"resized": (24, 32), "crop": (0, 0, 24, 32), "antialias": True}
        found = source.read(item, frames, **place).pixels
        assert [read_number(picture.numpy()) for picture in found] == frames.tolist()
        assert (found.int() - ours.read(item, frames, **place).pixels.int()).abs().float().mean() < 4  # type: ignore[arg-type]
        out = torch.empty(6, 24, 32, 3, dtype=torch.uint8)
        source.read(item, frames, **place, out=out)
        assert torch.equal(out, found)


def test_a_source_of_the_page_has_a_bad_video_replaced(source: Any, videos: VideoList) -> None:
    bad = next(item for item, path in enumerate(videos.paths) if "none" in path)
    with pytest.raises(VideoError):
        source.info(bad)
    dataset = VideoDataset(videos, vcycle.GridSampler(frames=4, size=16, span=(0.8, 1.0)), source=source)
    sample = dataset[vcycle.SampleRequest(bad, vcycle.Shape(4, 16, 16), (0, 0, 0))]
    assert [replaced.video for replaced in sample.replaced] == [bad]
    assert sample.clip.shape == (4, 16, 16, 3)


def test_rows_of_hugging_face_train_with_their_labels(videos: VideoList) -> None:
    _has("datasets")
    _has("torchcodec.decoders")
    names = classes_of_page("Hugging Face datasets")
    rows = rows_of(videos.without({"a/none.mp4": "no video"}))
    dataset = names["video_dataset"](rows, vcycle.GridSampler(frames=4, size=16, span=(0.8, 1.0)))
    plan = vcycle.cascade(vcycle.Baseline(batch=2, frames=4, size=16, clips=len(rows), epochs=8, lr=0.1))
    for _, batch in vcycle.steps(dataset, plan):
        assert batch.labels.tolist() == [rows.with_format(None)["label"][index] for index in batch.indices.tolist()]
        break


@pytest.mark.skipif("VCYCLE_TEST_FFMPEG" in os.environ, reason="this is the child")
def test_torchcodec_decodes_with_the_ffmpeg_of_pyav(tmp_path: Path) -> None:
    """Where the system has no FFmpeg, the tests above skip TorchCodec: here they run in a process that finds PyAV's."""
    if importlib.util.find_spec("torchcodec") is None:
        pytest.skip("torchcodec is not installed")
    for library in (Path(av.__file__).parents[1] / "av.libs").glob("lib[as][vw]*.so.*"):
        name = re.sub(r"-[0-9a-f]{8}(?=\.so)", "", library.name)  # libavcodec-1a2b3c4d.so.62.28.100 without its hash
        (tmp_path / re.sub(r"(\.so\.\d+).*", r"\1", name)).symlink_to(library)
    env = os.environ | {"VCYCLE_TEST_FFMPEG": "1", "LD_LIBRARY_PATH": str(tmp_path)}
    env.pop("PYTEST_XDIST_WORKER", None)
    arguments = ["-m", "pytest", "-q", "-rs", "-n", "0", "-p", "no:cacheprovider", __file__, "-k", "TorchCodec"]
    ran = subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True)
    said = ran.stdout + ran.stderr
    if "could not load libtorchcodec" in said.lower():
        pytest.skip(f"torchcodec does not go with this torch: {said.splitlines()[-1]}")
    assert ran.returncode == 0, said
    assert "2 passed" in said
