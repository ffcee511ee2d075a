"""Videos at URLs: folders and lists, read by fsspec, train as the same files on a disk do."""

import functools
import http.server
import json
import pickle
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import vcycle as library
from vcycle.data import FileSource, KeptIndexes, VideoDataset, VideoError, read_frames, read_list, read_videos
from vcycle.utils.extras import NotInstalledError

pytestmark = pytest.mark.usefixtures("fresh_interpreters")

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def memory(videos: Path) -> Iterator[Any]:
    """The videos at memory://set."""
    filesystem = fsspec.filesystem("memory")
    for file in videos.rglob("*.mp4"):
        filesystem.pipe(f"/set/{file.relative_to(videos)}", file.read_bytes())
    yield filesystem
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]


@pytest.fixture
def tar(videos: Path, tmp_path: Path) -> Path:
    """The videos in an archive."""
    with tarfile.open(tmp_path / "set.tar", "w") as archive:
        for folder in videos.iterdir():
            archive.add(folder, arcname=folder.name)
    return tmp_path / "set.tar"


@pytest.fixture
def server(videos: Path) -> Iterator[str]:
    """The address of a web server that lists the videos' folders."""
    pytest.importorskip("aiohttp")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

    serving = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(videos)))
    thread = threading.Thread(target=serving.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{serving.server_port}"
    serving.shutdown()
    thread.join()
    serving.server_close()


def batches(data: Any, *, start: int = 0, workers: int = 0) -> list[Any]:
    """The last steps' batches of a plan over the training videos."""
    videos = data if hasattr(data, "paths") else read_videos(data, "train")
    dataset = VideoDataset(videos, library.GridSampler(frames=4, size=16, span=(0.8, 1.0)))
    baseline = library.Baseline(batch=2, frames=4, size=16, clips=len(dataset), epochs=4, lr=0.1)
    return list(library.loader(dataset, library.cascade(baseline), start=start, workers=workers))


def assert_equal(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        assert not one.replaced
        assert torch.equal(one.clips, other.clips)
        assert torch.equal(one.labels, other.labels)


def test_a_run_on_urls_is_the_run_on_the_files_and_resumes(
    vcycle: Callable[..., Any], here: Path, memory: Any, trained: tuple[Path, Any]
) -> None:
    ran = vcycle("train", "tiny.yaml", "data=memory://set", "data.workers=2", "--out", "run", "--json")
    assert ran.code == 0, ran.err

    def losses(run: Path) -> list[float]:
        return [
            line["loss"] for line in map(json.loads, (run / "log.jsonl").read_text().splitlines()) if "loss" in line
        ]

    assert losses(here / "run") == losses(trained[0])
    (here / "run/checkpoints/step-000000006.pt").unlink()
    resumed = vcycle("train", "run", "--resume", "--json")
    assert "resuming at step 4 of 6" in resumed.err
    assert json.loads(resumed.out)["val"] == json.loads(ran.out)["val"] == trained[1]["val"]
    ran = vcycle("eval", "run", "--json")
    assert ran.code == 0, ran.err


def test_videos_at_a_url_are_checked_and_prepared_to_a_disk(
    vcycle: Callable[..., Any], here: Path, tar: Path, server: str
) -> None:
    ran = vcycle("check", server, "--quick", "--workers", "1", "--json")
    assert (ran.code, json.loads(ran.out)["videos"]) == (0, 32), ran.out

    def prepare(data: str) -> Any:
        return vcycle("prepare", data, "set", "--to", "array", "--short-side", "16", "--workers", "1")

    ran = prepare("tar://::set.tar")  # in the folder `here`
    assert (ran.code, "32 of 32 files" in ran.out) == (0, True), ran.err
    again = prepare(f"tar://::{tar}")
    assert (again.code, "32 from an earlier run" in again.out) == (0, True), again.err
    other = prepare(f"tar://train::{tar}")
    assert (other.code, f"was prepared with data tar://::{tar}, not tar://train::{tar}" in other.err) == (2, True)
    assert vcycle("plan", "tiny.yaml", "data=set").code == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_folders_of_every_filesystem_give_the_batches_of_a_disk(
    videos: Path, memory: Any, tar: Path, server: str, workers: int
) -> None:
    expected = batches(videos)
    for url in ("memory://set", f"tar://::{tar}", server, f"file://{videos}", "simplecache::memory://set"):
        assert_equal(batches(url, workers=workers), expected)
    assert_equal(batches("memory://set", start=3, workers=workers), expected[3:])


def test_lists_may_be_at_urls_and_name_urls(videos: Path, memory: Any, tar: Path, server: str, tmp_path: Path) -> None:
    found = read_videos(videos, "train")
    lines = list(zip(found.paths, found.labels, strict=True))
    expected = batches(found)
    for base in ("memory://set/train/{}", server + "/train/{}", f"tar://train/{{}}::{tar}", f"{videos}/train/{{}}"):
        (tmp_path / "list.csv").write_text("".join(f"{base.format(path)},{label}\n" for path, label in lines))
        assert_equal(batches(read_list(tmp_path / "list.csv")), expected)
    memory.pipe("/set/train.csv", "".join(f"train/{path} {label}\n" for path, label in lines).encode())
    assert_equal(batches(read_list("memory://set/train.csv")), expected)  # type: ignore[arg-type]


def test_a_list_with_a_root_stays_in_it(vcycle: Callable[..., Any], here: Path, memory: Any) -> None:
    for split in ("train", "val"):
        paths = [f"{split}/{name}/{number}.mp4" for name in ("left", "right") for number in range(4)]
        (here / f"{split}.csv").write_text("".join(f"{path},{path.split('/')[1]}\n" for path in paths))
    given = ["tiny.yaml", "data=train.csv", "data.val=val.csv", "data.root=memory://set"]
    assert vcycle("plan", *given).code == 0
    for outside in ("memory://other/a.mp4", "../a.mp4", "/etc/a.mp4", "http://127.0.0.1/a.mp4"):
        (here / "val.csv").write_text(f"{outside},left\n")
        ran = vcycle("plan", *given)
        assert (ran.code, "leads out of data.root memory://set" in ran.err) == (2, True), outside


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["data=s3://bucket/set"], "s3://bucket/set: Install s3fs"),
        (["data=nothing://set"], "nothing://set: Protocol not known"),
        (["data=memory://none"], "memory://none: no such folder or list file (no such file)"),
        (["data=http://127.0.0.1:9/x"], "127.0.0.1:9/x: no such folder or list file (no such file: Cannot connect"),
        (["data=memory://set", "data.layout=kinetics"], "layout kinetics is read from a local folder"),
        (["data=memory://set/train/left/0.mp4"], "0.mp4: a video"),
        (["data=memory://prepared"], "memory://prepared: prepared data, which is read from a local disk"),
    ],
)
def test_what_cannot_be_read_is_named(
    vcycle: Callable[..., Any], here: Path, memory: Any, given: list[str], message: str
) -> None:
    memory.pipe("/prepared/index.npz", b"of an index")
    ran = vcycle("plan", "tiny.yaml", *given)
    assert ran.code == 2
    assert message in ran.err.replace("\n", " ")


def test_super_resolution_needs_files(vcycle: Callable[..., Any], here: Path, memory: Any) -> None:
    ran = vcycle("plan", "demo/superresolution", "data=memory://set")
    assert (ran.code, "a path on this machine is needed" in ran.err) == (2, True), ran.err


def test_a_package_that_is_missing_ends_the_run_and_replaces_no_video(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("".join(f"s3://bucket/{n}.mp4,{n % 2}\n" for n in range(8)))
    with pytest.raises(NotInstalledError, match="Install s3fs") as caught:
        batches(read_list(tmp_path / "list.csv"))
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # as a worker sends it


def test_an_index_is_kept_for_the_version_of_a_file_and_another_version_is_refused(
    memory: Any, tar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for url in ("memory://set/train/left/0.mp4", f"tar://train/left/0.mp4::{tar}"):
        kept = KeptIndexes(tmp_path / "indexes.sqlite")
        first = kept(url)
        with monkeypatch.context() as patched:
            patched.setattr("vcycle.data.video.kept.probe", lambda path: pytest.fail(f"{path} is indexed again"))
            assert kept(url).info.frames == first.info.frames == 12
        content = memory.cat_file("/set/train/left/0.mp4")
        memory.pipe("/set/train/left/0.mp4", content)
        tar.write_bytes(tar.read_bytes() + bytes(1024))
        with pytest.raises(VideoError, match="has changed since it was indexed"):
            first.check()


def test_a_missing_file_at_a_url_is_a_bad_video(memory: Any) -> None:
    videos = read_videos("memory://set", "train")  # type: ignore[arg-type]
    memory.rm("/set/train/left/0.mp4")
    with pytest.raises(VideoError, match=r"memory://set/train/left/0.mp4: no such file"):
        FileSource(videos).info(0)
    memory.pipe("/set/train/left/0.mp4", b"#EXTM3U\nhttp://127.0.0.1/a.ts\n")
    with pytest.raises(VideoError, match="an HLS playlist"):
        FileSource(videos).info(0)
    memory.pipe("/set/train/left/0.mp4", b"nothing of a video")
    with pytest.raises(VideoError, match="not a video"):
        FileSource(videos).info(0)


def test_a_connection_that_breaks_is_a_fault_of_the_video(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the filesystem's library raises, wherever FFmpeg reads: the file does not count as a shorter one."""
    videos = read_videos("memory://set", "train")  # type: ignore[arg-type]
    opened = type(memory).open
    index = FileSource(videos).index(0)

    class Breaking:
        def __init__(self, file: Any, left: int) -> None:
            self.file, self.left = file, left

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

        def read(self, size: int) -> bytes:
            self.left -= 1
            if self.left < 0:
                raise RuntimeError("connection reset")
            return bytes(self.file.read(min(size, 512)))

    for reads in (0, 1, 3):

        def open_breaking(self: Any, *given: Any, reads: int = reads, **more: Any) -> Breaking:
            return Breaking(opened(self, *given, **more), reads)

        monkeypatch.setattr(type(memory), "open", open_breaking)
        with pytest.raises(VideoError, match=r"0.mp4: RuntimeError: connection reset"):
            FileSource(videos).info(0)
        with pytest.raises(VideoError, match=r"0.mp4: RuntimeError: connection reset"):
            read_frames(index, [11])
