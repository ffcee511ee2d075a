"""Small real video files whose frames carry their own number."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from vcycle.data import PrepareReport, PrepareSettings, VideoList, prepare_videos, read_videos

WIDTH, HEIGHT = 64, 48
BITS = 8


def picture(number: int, height: int = HEIGHT, width: int = WIDTH) -> NDArray[np.uint8]:
    """A picture with its number written in binary, as bars over the upper two thirds; the rest is dark."""
    bars = np.array([(number >> bit) & 1 for bit in range(BITS)], dtype=np.uint8)
    rows = np.zeros((height, width), dtype=np.uint8)
    rows[: 2 * height // 3] = 40 + 180 * np.repeat(bars, width // BITS)
    return np.repeat(rows[..., None], 3, axis=2)


@pytest.fixture(scope="session")
def draw_number() -> Callable[[int], NDArray[np.uint8]]:
    """Draws such a picture."""
    return picture


@pytest.fixture(scope="session")
def read_number() -> Callable[[NDArray[np.uint8]], int]:
    """Reads the number back from a decoded picture of any size."""

    def read(pixels: NDArray[np.uint8]) -> int:
        height, width = pixels.shape[:2]
        upper = pixels[: height // 2].mean(axis=(0, 2)).reshape(BITS, width // BITS).mean(axis=1)
        return sum(1 << bit for bit, light in enumerate(upper) if light > 130)

    return read


@pytest.fixture(scope="session")
def write_video() -> Callable[..., Path]:
    """Writes ``frames`` numbered pictures, by default as H.264 with B-frames and a key frame each 12."""

    def write(
        path: Path,
        frames: int = 40,
        *,
        codec: str = "libx264",
        rate: int = 25,
        times: Sequence[float] | None = None,
        rotation: int = 0,
        mirrored: bool = False,
        options: dict[str, str] | None = None,
        muxing: dict[str, str] | None = None,
        size: tuple[int, int] = (HEIGHT, WIDTH),
        pixels: str = "yuv420p",
    ) -> Path:
        defaults = {"preset": "ultrafast", "bf": "2", "g": "12", "b_strategy": "0"} if codec == "libx264" else {}
        path.parent.mkdir(parents=True, exist_ok=True)
        with av.open(str(path), "w", options=muxing or {}) as container:
            stream = container.add_stream(codec, rate=rate, options={**defaults, **(options or {})})
            stream.height, stream.width = size
            stream.pix_fmt = pixels
            if times is not None:
                stream.codec_context.time_base = Fraction(1, 1000)
            if rotation or mirrored:
                stream.set_display_rotation(rotation, hflip=mirrored)
            for number in range(frames):
                frame = av.VideoFrame.from_ndarray(picture(number, *size), format="rgb24")
                if times is not None:
                    frame.pts, frame.time_base = round(times[number] * 1000), Fraction(1, 1000)
                container.mux(stream.encode(frame))
            container.mux(stream.encode())
        return path

    return write


@pytest.fixture(scope="session")
def video_set(tmp_path_factory: pytest.TempPathFactory, write_video: Callable[..., Path]) -> Path:
    """Files of several kinds, one that is none, in two splits."""
    root = tmp_path_factory.mktemp("prepare") / "set"
    uneven = np.cumsum([0.04, 0.08, 0.02, 0.12, 0.04] * 4)
    write_video(root / "train/run/b frames.mp4", 30)
    write_video(root / "train/run/uneven.mkv", 20, times=uneven.tolist(), options={"bf": "0"})
    write_video(root / "train/run/old.avi", 15, codec="mpeg4")
    write_video(root / "train/run/same.avi", 9, codec="mpeg4")
    write_video(root / "train/run/same.mp4", 11)
    write_video(root / "train/sit/tämporal.ts", 13, codec="mpeg2video")
    write_video(root / "train/sit/turned.mp4", 15, size=(96, 64), rotation=90)
    write_video(root / "train/sit/small.mp4", 5, size=(18, 24))
    (root / "train/sit/none.mp4").write_bytes(b"no video")
    write_video(root / "val/run/a.mp4", 12)
    write_video(root / "val/sit/a.mp4", 12)
    return root


@pytest.fixture(scope="session")
def splits_of() -> Callable[[Path], dict[str, VideoList]]:
    """Lists the videos of a folder by split, as a preparation takes them."""
    return lambda root: {split: read_videos(root, split) for split in ("train", "val")}


@pytest.fixture(scope="session")
def prepare(splits_of: Callable[[Path], dict[str, VideoList]]) -> Callable[..., PrepareReport]:
    """Prepares the videos of a folder, by default with one worker."""

    def run(root: Path, out: Path, settings: PrepareSettings, **options: Any) -> PrepareReport:
        return prepare_videos(splits_of(root), out, settings, **{"workers": 1, **options})

    return run
