"""The digit set: real files, whose class needs the digit and the order of the frames, made once and whole."""

import itertools
import json
from pathlib import Path

import av
import numpy as np
import pytest
from pydantic import ValidationError

from vcycle.data.layouts.splits import SPLITS
from vcycle.errors import DataError
from vcycle.tasks.recognition import digits as module
from vcycle.tasks.recognition.digits import MARKER, MOTIONS, render_digits, render_luma
from vcycle.tasks.recognition.recipe import DigitsSection

SMALL = DigitsSection(
    digits=(2, 7),
    motions=("left", "clockwise"),
    clips={"train": 3, "val": 1, "test": 2},
    frames=14,
    size=32,
    digit_size=16,
)


@pytest.fixture(scope="module")
def small_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return render_digits(tmp_path_factory.mktemp("digits") / "set", SMALL)


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*.mp4"))}


def plain(motion: str, seed: int = 0, **settings: object) -> np.ndarray:
    """Render a clip without texture, noise and jitter, as ink on grey."""
    chosen = DigitsSection(texture=0.0, noise=0.0, jitter=0.0, **settings)
    scan = module._load_scans()[2][0]
    luma = render_luma(scan, motion, chosen, np.random.default_rng(seed)).astype(float)
    return np.abs(luma - np.median(luma))


def shift_between(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Find the shift (y, x) between two frames of a torus from the phase of their lowest frequencies."""
    before, after = np.fft.fft2(first), np.fft.fft2(second)
    turns = [np.angle(after[place] / before[place]) for place in ((1, 0), (0, 1))]
    return -np.array(turns) * len(first) / (2 * np.pi)


def test_each_split_holds_a_folder_for_each_class_with_the_clips_asked_for(small_set: Path) -> None:
    classes = {"2-left", "2-clockwise", "7-left", "7-clockwise"}
    for split, count in SMALL.clips.items():
        assert {folder.name for folder in (small_set / split).iterdir()} == classes
        for folder in (small_set / split).iterdir():
            assert sorted(path.name for path in folder.iterdir()) == [f"{n:04d}.mp4" for n in range(count)]


def test_each_file_is_h264_with_a_key_frame_each_12_frames_and_no_reordering(small_set: Path) -> None:
    with av.open(str(small_set / "train/2-left/0000.mp4")) as container:
        stream = container.streams.video[0]
        frames = list(container.decode(stream))
        assert stream.codec_context.name == "h264"
        assert stream.codec_context.format.name == "yuv420p"
        assert not stream.codec_context.has_b_frames
        assert float(stream.average_rate) == 24
    assert len(frames) == 14
    assert [number for number, frame in enumerate(frames) if frame.key_frame] == [0, 12]
    assert {(frame.height, frame.width) for frame in frames} == {(32, 32)}


def test_the_decoded_luma_is_the_drawn_one_but_for_compression(small_set: Path) -> None:
    scan = module._scans_of_split(module._load_scans()[2], "train", 2, SMALL.seed)[0]
    key = (SMALL.seed, 1, 2, MOTIONS.index("left"), 0)
    drawn = render_luma(scan, "left", SMALL, module._generator(*key)).astype(float)
    with av.open(str(small_set / "train/2-left/0000.mp4")) as container:
        decoded = np.stack([frame.to_ndarray()[:32] for frame in container.decode(video=0)])
    assert 10 * np.log10(255**2 / np.mean((decoded - drawn) ** 2)) > 30


def test_a_finished_set_with_the_same_settings_is_reused(small_set: Path) -> None:
    calls: list[tuple[int, int]] = []
    assert render_digits(small_set, SMALL, progress=lambda *done: calls.append(done)) == small_set
    assert calls == []


def test_an_unfinished_set_is_made_anew(small_set: Path, tmp_path: Path) -> None:
    root = render_digits(tmp_path / "set", SMALL)
    held = json.loads((root / MARKER).read_text())
    (root / MARKER).write_text(json.dumps({**held, "finished": False}))
    (root / "train/2-left/0001.mp4").write_bytes(b"half")
    (root / "train/2-left/0002.part").write_bytes(b"half")
    calls: list[tuple[int, int]] = []
    render_digits(root, SMALL, progress=lambda *done: calls.append(done))
    assert contents(root) == contents(small_set)
    assert not list(root.rglob("*.part"))
    assert calls == [(done, 24) for done in range(1, 25)]


def test_a_set_with_other_settings_is_made_anew(tmp_path: Path) -> None:
    few = {"digits": (2,), "motions": ("up",), "size": 32, "digit_size": 16}
    render_digits(tmp_path, DigitsSection(clips={"train": 2, "val": 1}, **few))
    render_digits(tmp_path, DigitsSection(clips={"train": 1}, **few))
    assert list(contents(tmp_path)) == ["train/2-up/0000.mp4"]


def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "mine.mp4").write_bytes(b"mine")
    with pytest.raises(DataError, match=r"not empty and has no digits\.json"):
        render_digits(tmp_path, SMALL)
    assert contents(tmp_path) == {"train/mine.mp4": b"mine"}


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "set").write_bytes(b"")
    with pytest.raises(DataError, match="is a file"):
        render_digits(tmp_path / "set", SMALL)


def test_what_cannot_be_removed_for_a_new_set_is_named(tmp_path: Path) -> None:
    render_digits(tmp_path / "set", SMALL.model_copy(update={"clips": {"val": 1}}))
    (tmp_path / "set" / "train").write_bytes(b"")
    with pytest.raises(DataError, match=r"set/train of an earlier set cannot be removed: give a new or empty folder"):
        render_digits(tmp_path / "set", SMALL)


def test_a_clip_does_not_depend_on_what_else_is_rendered(small_set: Path, tmp_path: Path) -> None:
    one = DigitsSection(digits=(7,), motions=("clockwise",), clips={"test": 2}, frames=14, size=32, digit_size=16)
    alone = contents(render_digits(tmp_path / "alone", one))
    whole = contents(small_set)
    assert alone == {name: whole[name] for name in alone}
    assert len(alone) == 2


def test_another_seed_gives_other_clips(small_set: Path, tmp_path: Path) -> None:
    one = DigitsSection(digits=(2,), motions=("left",), clips={"train": 1}, frames=14, size=32, digit_size=16, seed=1)
    (name, content), *_ = contents(render_digits(tmp_path, one)).items()
    assert contents(small_set)[name] != content


@pytest.mark.parametrize("digit", range(10))
def test_each_scan_belongs_to_exactly_one_split(digit: int) -> None:
    count = len(module._load_scans()[digit])
    numbered = np.arange(count, dtype=np.float32)[:, None, None]
    parts = [module._scans_of_split(numbered, split, digit, 5).ravel() for split in SPLITS]
    assert sorted(np.concatenate(parts)) == list(range(count))
    assert [round(len(part) / count, 1) for part in parts] == [0.6, 0.2, 0.2]


@pytest.mark.parametrize(
    ("motion", "sign"),
    [
        ("left", (0, -1)),
        ("right", (0, 1)),
        ("up", (-1, 0)),
        ("down", (1, 0)),
        ("up-left", (-1, -1)),
        ("up-right", (-1, 1)),
        ("down-left", (1, -1)),
        ("down-right", (1, 1)),
    ],
)
def test_a_straight_motion_goes_its_way_at_a_speed_within_the_range(motion: str, sign: tuple[int, int]) -> None:
    for seed in range(5):
        clip = plain(motion, seed, size=40, speed=(0.02, 0.04))
        shifts = np.array([shift_between(*pair) for pair in itertools.pairwise(clip)])
        assert np.all(np.sign(np.rint(shifts.mean(axis=0) * 5)) == sign)
        assert 0.02 * 40 - 0.05 < np.linalg.norm(shifts.mean(axis=0)) < 0.04 * 40 + 0.05
        assert shifts.std(axis=0).max() < 0.1


@pytest.mark.parametrize(("motion", "sign"), [("clockwise", 1), ("counterclockwise", -1)])
def test_a_turning_motion_turns_its_way_on_the_screen(motion: str, sign: int) -> None:
    for seed in range(5):
        clip = plain(motion, seed)
        shifts = np.array([shift_between(*pair) for pair in itertools.pairwise(clip)])
        # With y downwards, x cross y is positive for a clockwise turn.
        turn = shifts[:-1, 1] * shifts[1:, 0] - shifts[:-1, 0] * shifts[1:, 1]
        assert np.all(np.sign(turn) == sign)


def test_a_single_frame_does_not_tell_a_motion_from_its_opposite() -> None:
    for motion, opposite in (("left", "right"), ("up", "down"), ("clockwise", "counterclockwise")):
        assert np.array_equal(plain(motion)[0], plain(opposite)[0])


def test_the_digit_keeps_its_ink_wherever_it_is_on_the_torus() -> None:
    ink = plain("left", speed=(0.04, 0.04), frames=50).sum(axis=(1, 2))
    assert ink.std() / ink.mean() < 0.01


def test_contrast_texture_and_noise_have_the_strength_asked_for() -> None:
    blank = np.zeros((8, 8), np.float32)
    rng = np.random.default_rng(0)
    still = render_luma(blank, "left", DigitsSection(texture=0.1, noise=0.0), rng).astype(float) / 219
    assert np.ptp(still, axis=0).max() == 0
    assert still[0].std() == pytest.approx(0.1, abs=0.01)
    noisy = render_luma(blank, "left", DigitsSection(texture=0.0, noise=0.05), rng).astype(float) / 219
    assert noisy.std() == pytest.approx(0.05, abs=0.005)
    assert plain("left", contrast=(0.3, 0.3)).max() / 219 == pytest.approx(0.3, abs=0.01)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"digits": (2, 12)}, "digits has 12: give one or more, each once, of 0, 1"),
        ({"digits": ()}, r"digits is \(\)"),
        ({"motions": ("left", "left")}, r"motions is \('left', 'left'\)"),
        ({"motions": ("sideways",)}, "motions has 'sideways'.*clockwise"),
        ({"clips": {"train": 0}}, r"clips\.train\n.*greater than 0"),
        ({"clips": {"training": 5}}, "clips is {'training': 5}.*train, val, test"),
        ({"frames": 1}, "frames is 1"),
        ({"size": 41}, "size is 41"),
        ({"digit_size": 30}, "digit_size is 30: give 8 to 29.09 pixels in a frame of 40"),
        ({"speed": (0.04, 0.02)}, r"speed is \(0.04, 0.02\)"),
        ({"noise": -0.1}, r"noise\n.*greater than or equal to 0"),
        ({"noise": 1.1}, "noise is 1.1: give a value from 0 to 1"),
        ({"seed": -1}, r"seed\n.*greater than or equal to 0"),
    ],
)
def test_a_setting_out_of_range_is_refused_with_what_is_accepted(settings: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises((DataError, ValidationError), match=message):
        render_digits(tmp_path, DigitsSection(**settings))
