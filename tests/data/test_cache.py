import os
import pickle

import av
import numpy as np
import pytest
import torch

from vcycle.data import FrameCache, GridSampler, SampleRequest, VideoDataset, VideoError, VideoList, read_videos
from vcycle.errors import DataError
from vcycle.plan import Shape

GRIDS = GridSampler(frames=8, size=48, flip=True, field=(0.7, 1.0))


@pytest.fixture
def videos(tmp_path, write_video):
    write_video(tmp_path / "set" / "train" / "run" / "a.mp4", 20)
    write_video(tmp_path / "set" / "train" / "run" / "b.avi", 11, codec="mpeg4")
    write_video(tmp_path / "set" / "train" / "sit" / "c.mp4", 15, size=(64, 48), rotation=90)
    (tmp_path / "set" / "train" / "sit" / "d.mp4").write_bytes(b"no video")
    return read_videos(tmp_path / "set", "train")


def build(videos, tmp_path, short_side=48, **options):
    return FrameCache.build(videos, tmp_path / "cache", short_side=short_side, **options)


def request(index, position=7):
    return SampleRequest(index, Shape(4, 24, 24), (0, 0, position))


def test_cached_frames_are_the_files_own(videos, tmp_path):
    files, cached = VideoDataset(videos, GRIDS), VideoDataset(videos, GRIDS, source=build(videos, tmp_path))
    for item in range(3):
        info, cached_info = files.source.info(item), cached.source.info(item)
        assert info.times.tolist() == cached_info.times.tolist()
        assert (info.duration, info.height, info.width) == (
            cached_info.duration,
            cached_info.height,
            cached_info.width,
        )
        for position in range(4):
            file, memory = (dataset[request(item, position=position)] for dataset in (files, cached))
            assert file.clip.shape == memory.clip.shape == (4, 24, 24, 3)
            # The same grid; the two scalers and the cut at whole pixels differ at the edges of bars.
            assert (file.clip.float() - memory.clip.float()).abs().mean() < 8
    whole = Shape(8, 48, 64)
    assert torch.equal(files.center(0, whole).clip, cached.center(0, whole).clip)


def test_frames_are_stored_at_the_short_side(videos, tmp_path):
    cache = build(videos, tmp_path, short_side=24)
    assert cache.file.stat().st_size == 3 * (20 * 24 * 32 + 11 * 24 * 32 + 15 * 24 * 32)
    assert cache.read(0, np.array([3, 3]), resized=(48, 64), crop=(0, 0, 48, 64), antialias=True).pixels.shape == (
        2,
        48,
        64,
        3,
    )


def test_small_videos_are_not_enlarged(videos, tmp_path):
    assert build(videos, tmp_path, 96).file.stat().st_size == build(videos, tmp_path, 48).file.stat().st_size


def test_an_unreadable_video_stays_unreadable(videos, tmp_path):
    cache = build(videos, tmp_path)
    assert list(cache.faults) == [3]
    with pytest.raises(VideoError, match=r"d\.mp4: not a video"):
        cache.info(3)
    (replaced,) = VideoDataset(videos, GRIDS, source=cache)[request(3)].replaced
    assert (replaced.video, replaced.path) == (3, str(videos.path(3)))


def test_a_cache_is_built_once_and_again_when_the_videos_change(videos, tmp_path):
    done = []
    first = build(videos, tmp_path, progress=lambda *counts: done.append(counts))
    assert done[-1][0] <= done[-1][1] == 1  # MB
    told = len(done)
    assert build(videos, tmp_path, progress=lambda *counts: done.append(counts)).file == first.file
    assert len(done) == told
    os.utime(videos.path(0), (1, 1))
    assert build(videos, tmp_path).file != first.file
    assert build(videos, tmp_path, 24).file != first.file


def test_pictures_that_were_written_to_where_they_lie_are_another_dataset(tmp_path):
    folder = tmp_path / "set" / "clip"
    folder.mkdir(parents=True)

    def draw(light):
        for number in range(3):
            with av.open(str(folder / f"{number}.bmp"), "w", format="image2") as container:
                stream = container.add_stream("bmp", rate=1)
                stream.height, stream.width, stream.pix_fmt = 16, 16, "bgr24"
                picture = av.VideoFrame.from_ndarray(np.full((16, 16, 3), light, dtype=np.uint8), format="bgr24")
                container.mux([*stream.encode(picture), *stream.encode()])
            os.utime(folder / f"{number}.bmp", ns=(0, light))

    videos = VideoList(
        root=tmp_path / "set", paths=["clip"], labels=[0], classes=("x",), source=tmp_path / "set", frame_rate=12.0
    )
    shown = []
    for light in (10, 200):
        draw(light)
        os.utime(folder, ns=(0, 5))
        cache = build(videos, tmp_path, 16)
        read = cache.read(0, np.arange(3), resized=(16, 16), crop=(0, 0, 16, 16), antialias=True)
        shown.append((cache.folder, read.pixels.unique().tolist()))
    assert [lights for _, lights in shown] == [[10], [200]]
    assert build(videos, tmp_path, 16).folder == shown[1][0] != shown[0][0]


def test_a_build_that_was_interrupted_goes_on(videos, tmp_path):
    def stop(done, total):
        raise KeyboardInterrupt

    whole = build(videos, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        build(videos, tmp_path, progress=stop)
    again = build(videos, tmp_path)
    assert again.file.read_bytes() == whole.file.read_bytes()
    assert (again.folder / "index.npz").read_bytes() == (whole.folder / "index.npz").read_bytes()


def test_a_full_disk_is_an_error_before_anything_is_decoded(videos, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(DataError, match=r"cannot be written: No space left"):
        build(videos, tmp_path)


def test_a_damaged_cache_is_refused(videos, tmp_path):
    cache = build(videos, tmp_path)
    cache.file.write_bytes(cache.file.read_bytes()[:-1])
    with pytest.raises(DataError, match="is truncated"):
        FrameCache(videos, cache.folder)
    (cache.folder / "index.npz").write_bytes(b"")
    with pytest.raises(DataError, match=r"not a readable index.*delete .* to build the frame cache again"):
        FrameCache(videos, cache.folder)


def test_another_process_opens_the_file_itself(videos, tmp_path):
    cache = build(videos, tmp_path)
    dataset = VideoDataset(videos, GRIDS, source=cache)
    expected = dataset[request(0)].clip
    sent = pickle.dumps(dataset)
    assert len(sent) < 20_000
    assert torch.equal(pickle.loads(sent)[request(0)].clip, expected)


def test_frames_that_were_filled_are_still_reported(tmp_path, write_video):
    path = write_video(tmp_path / "set" / "run" / "a.mkv", 12, codec="mjpeg", options={"strict": "unofficial"})
    with av.open(str(path)) as container:
        payload = [bytes(packet) for packet in container.demux(video=0) if packet.size][5]
    path.write_bytes(path.read_bytes().replace(payload, bytes(len(payload))))
    videos = read_videos(tmp_path / "set", "train", val_fraction=0)
    for source in (None, build(videos, tmp_path)):
        sample = VideoDataset(videos, GridSampler(frames=12, size=48), source=source).center(0, Shape(12, 48, 48))
        assert sample.fault == f"{path}: 1 of 12 frames cannot be decoded"
