"""Two processes that want the same made: one makes it, the other waits and finds it."""

import multiprocessing
import os
import warnings

import pytest

from vcycle.data import FrameCache, read_videos
from vcycle.tasks.recognition.digits import render_digits
from vcycle.tasks.recognition.recipe import DigitsSection
from vcycle.tasks.superres.pairs.photographs import PhotographSettings, render_photographs

FORK = multiprocessing.get_context("fork")


class Second:
    """Work that another process does meanwhile; it must have nothing to do."""

    def __init__(self, work):
        self.work, self.process, self.waits = work, None, FORK.Event()

    def start(self, *_):
        """Start it, once, and return when it waits."""
        if self.process is None:
            self.process = FORK.Process(target=self.run, daemon=True)
            self.process.start()
            assert self.waits.wait(60)
            assert self.process.is_alive()

    def run(self):
        warnings.showwarning = lambda message, *_: "waiting for" in str(message) and self.waits.set()
        warnings.simplefilter("always")
        self.work(progress=lambda *_: os._exit(3))

    def code(self):
        self.process.join(60)
        return self.process.exitcode


def digits(folder, progress):
    few = {"digits": (2,), "motions": ("up",), "size": 32, "digit_size": 16}
    render_digits(folder, DigitsSection(clips={"train": 2}, **few), progress=progress)


def photographs(folder, progress):
    render_photographs(folder, PhotographSettings(clips={"train": 2}, frames=2, size=32), progress=progress)


@pytest.mark.parametrize("make", [digits, photographs])
def test_an_embedded_set(make, tmp_path):
    second = Second(lambda progress: make(tmp_path / "set", progress))
    make(tmp_path / "set", second.start)
    assert second.code() == 0
    assert len(list((tmp_path / "set" / "train").iterdir())) > 0


def test_a_cache(tmp_path, write_video):
    write_video(tmp_path / "set" / "train" / "run" / "a.mp4", 20)
    videos = read_videos(tmp_path / "set", "train")

    def build(progress):
        FrameCache.build(videos, tmp_path / "cache", short_side=48, progress=progress)

    second = Second(build)
    build(second.start)
    assert second.code() == 0
