import io
import json

import av
import numpy as np
import pytest
import torch
from rich.console import Console

from vcycle.bench.data import study
from vcycle.bench.data.clips import generated_videos, pictures
from vcycle.bench.data.readers import asks, plain_loop, source_reader
from vcycle.bench.data.study import DEFAULT_GRIDS, DEFAULT_SHAPES, Effort, some_videos
from vcycle.bench.data.targets import targets
from vcycle.bench.timing import interleaved, ratios
from vcycle.cli.app import app
from vcycle.data import FileSource, VideoList
from vcycle.errors import DataError
from vcycle.report.throughput import loader_table, readers_table, target_table, throughput_notes


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    return generated_videos(tmp_path_factory.mktemp("videos"), 2, frames=40)


def test_generated_videos_are_h264_of_one_group_in_motion(generated):
    with av.open(str(generated.path(0))) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
        assert container.streams.video[0].codec_context.name == "h264"
    assert [packet.is_keyframe for packet in packets].count(True) == 1
    first, later = (FileSource(generated).read(0, np.array([at]), resized=(64, 85), crop=(0, 0, 64, 85), antialias=True)
                    for at in (0, 30))  # fmt: skip
    assert (first.pixels.int() - later.pixels.int()).abs().float().mean() > 5


def test_generated_videos_are_kept_and_show_the_same_every_time(generated):
    before = generated.path(0).stat().st_mtime_ns
    generated_videos(generated.root, 2, frames=40)
    assert generated.path(0).stat().st_mtime_ns == before
    first, again = (np.stack(list(pictures(0, 3))) for _ in range(2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, np.stack(list(pictures(1, 3))))


def test_the_plain_loop_reads_the_very_same_pixels(generated):
    source = FileSource(generated)
    for shape in DEFAULT_SHAPES:
        for ask in asks(generated, source, DEFAULT_GRIDS, shape, 4):
            assert np.array_equal(plain_loop(ask), source_reader(source)(ask))


def test_clips_asked_for_are_the_same_on_every_run(generated):
    first, second = (asks(generated, FileSource(generated), DEFAULT_GRIDS, DEFAULT_SHAPES[0], 5) for _ in range(2))
    assert [ask.frames.tolist() for ask in first] == [ask.frames.tolist() for ask in second]
    assert len({tuple(ask.frames) for ask in first}) > 1


def test_some_videos_are_spread_and_unreadable_ones_named(generated, tmp_path):
    (tmp_path / "empty.mp4").touch()
    paths = [str(tmp_path / "empty.mp4"), *(str(generated.path(item)) for item in range(2))]
    chosen, errors = some_videos(_listed(paths, tmp_path), 2)
    assert list(chosen.paths) == paths[1:]
    assert [error.cause for error in errors] == ["an empty file"]
    with pytest.raises(DataError, match="none of the 1 tried videos can be read"):
        some_videos(_listed(paths[:1], tmp_path), 2)


def _listed(paths, root):
    return VideoList(root=root, paths=paths, labels=[0] * len(paths), classes=("any",), source=root)


def test_works_are_timed_in_turn():
    order = []

    def work(name):
        order.append(name)
        torch.zeros(2_000_000).add_(1)
        return 2

    turns = interleaved({"a": lambda: work("a"), "b": lambda: work("b")}, 3)
    assert {name: len(taken) for name, taken in turns.items()} == {"a": 3, "b": 3}
    shortened = [name for name, before in zip(order[2:], ["", *order[2:]], strict=False) if name != before]
    assert shortened == ["a", "b"] * 3


def test_ratios_are_taken_turn_by_turn():
    assert ratios([2.0, 8.0, 9.0], [1.0, 2.0, 3.0]) == (3.0, 2.0, 4.0)


def test_targets_say_what_was_promised_and_whether_it_was_reached():
    fast, slow = ({"median": value, "low": value, "high": value} for value in (9.0, 1.1))
    readers = {
        "plain loop": {"over_plain": slow},
        "vcycle": {"over_plain": slow},
        "vcycle, prepared video": {"over_plain": fast},
        "vcycle, prepared array": {"over_plain": fast},
        "decord2": {"under_vcycle": slow},
    }
    found = {
        "sets": [{"grids": [{"frames": 8, "size": 112, "readers": readers}]}],
        "loader": [
            {"source": "vcycle", "workers": workers, "bare_ms": {"median": 20.0}, "share": fast} for workers in (1, 2)
        ],
        "memory": {"decodes": 10, "megabytes": 0.5},
    }
    reached = [(row["target"], row["reached"]) for row in targets(found, standard=True)]
    assert reached == [
        (">= 1.2", False),
        (">= 8", True),
        (">= 50", False),
        (">= 1", True),
        (">= 0.9", True),
        ("< 50", True),
    ]
    assert len(targets(found, standard=False)) == 4


def test_the_command_measures_every_reader_on_generated_and_own_videos(capsys, tmp_path, digit_videos):
    app(
        ["bench", "data", str(digit_videos), "--recipe", "demo/digits", "--quick", "--json", "--out", str(tmp_path)],
        standalone_mode=False,
    )
    found = json.loads(capsys.readouterr().out)
    assert [measured["name"] for measured in found["sets"]] == ["generated", "your"]
    for measured in found["sets"]:
        for grid in measured["grids"]:
            assert {"plain loop", "vcycle", "vcycle, prepared video", "vcycle, prepared array"} <= set(grid["readers"])
            no_ffmpeg = {"torchcodec": "fails: Could not load libtorchcodec. Likely causes:"}
            assert grid["faults"] in ({}, no_ffmpeg)
    assert {row["workers"] for row in found["loader"]} <= {1, 2}
    assert found["memory"]["decodes"] == Effort.quick().decodes
    kept = json.loads((tmp_path / "data.jsonl").read_text())
    assert kept["targets"] == found["targets"]

    console = Console(file=io.StringIO(), width=160)
    for table in (*map(readers_table, found["sets"]), loader_table(found["loader"]), target_table(found["targets"])):
        console.print(table)
    shown = console.file.getvalue() + "\n".join(throughput_notes(found))
    for words in ("generated videos: 1 of 340x256", "your videos: 1 of 24x24", "through the loader", "memory growth"):
        assert words in shown


def test_the_loader_is_measured_on_the_generated_videos_and_their_own_sources(generated, tmp_path, monkeypatch):
    measured = {}

    def share(videos, sources, *_, **__):
        measured.update(videos=videos, own=sources["vcycle"].videos)
        return []

    monkeypatch.setattr(study, "loader_share", share)
    monkeypatch.setattr(study, "targets", lambda *_, **__: [])
    study.bench_data(tmp_path, effort=Effort.quick(), own=generated, shapes=DEFAULT_SHAPES[:1], short_side=32)
    assert measured["videos"] == measured["own"] != generated
