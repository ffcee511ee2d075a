"""A bad video never stops a run, and is never silent."""

import dataclasses
import shutil

import pytest

from vcycle.data import SampleStream
from vcycle.errors import DataError, VcycleError
from vcycle.runs.train import config_of
from vcycle.tasks.recognition.init_weights import build_model
from vcycle.tasks.recognition.task import RECOGNITION
from vcycle.train.callbacks import Callbacks
from vcycle.train.journal import Journal
from vcycle.train.outcome import Totals
from vcycle.train.run import RunFolder
from vcycle.train.trainer import fit
from vcycle.utils.jsonl import JsonLines

BAD = "train/2-left/0003.mp4"


def damage(digit_videos, videos):
    """Copy the videos with one zero-byte file."""
    shutil.copytree(digit_videos, videos)
    (videos / BAD).write_bytes(b"")
    return videos


@pytest.fixture
def damaged(digit_videos, tmp_path):
    """A copy of the videos with one zero-byte file."""
    return damage(digit_videos, tmp_path / "videos")


def journal(folder):
    return list(JsonLines(RunFolder(folder).bad_samples).read())


def steps(folder):
    return [line for line in JsonLines(RunFolder(folder).log).read() if line["event"] == "step"]


@pytest.fixture(scope="module")
def train_on(make_training):
    def train_on(videos, *overrides):
        return make_training("run.bad_limit=0.2", "run.validate_every=100", *overrides, videos=videos)

    return train_on


def test_an_unreadable_video_is_named_replaced_counted_and_listed(train_on, damaged, tmp_path):
    training = train_on(damaged)
    said = []
    fitted = training.run(tmp_path / "run", on_message=said.append)
    (cause,) = {line["cause"] for line in journal(tmp_path / "run")}
    assert said == [f"bad video {damaged / BAD}: {cause}; another takes its place"]
    lines = journal(tmp_path / "run")
    bad = training.experiment.splits.train.paths.index("2-left/0003.mp4")
    stream = SampleStream(24, seed=0).indices(0, training.plan.samples).tolist()
    assert [line["position"] for line in lines] == [place for place, video in enumerate(stream) if video == bad]
    assert fitted.replaced == len(lines) == 12
    for line in lines:
        assert (line["video"], line["path"]) == (bad, str(damaged / BAD))
        assert line["replacement"] not in (bad, -1)


@pytest.mark.parametrize("line", ["garbage", "{}", '{"path": "a", "position": "x", "replacement": 1}'])
def test_a_journal_that_was_damaged_cannot_be_repeated(tmp_path, line):
    file = tmp_path / "bad_samples.jsonl"
    file.write_text(line + "\n")
    for own, others in ((file, []), (tmp_path / "bad_samples.1.jsonl", [file])):
        with pytest.raises(VcycleError, match=r"bad_samples\.jsonl, line 1 is damaged: "):
            Journal(own, Totals(), others=others, first=0, clips=9, limit=0.1)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_resumed_run_repeats_the_replacements_even_if_the_file_has_been_mended(
    train_on, digit_videos, damaged, record_of, tmp_path, workers
):
    training = train_on(damaged, f"data.workers={workers}", "run.save_every=100")
    training.run(tmp_path / "whole")
    whole = record_of(tmp_path / "whole")

    training.run_until(12, tmp_path / "run")
    written = journal(tmp_path / "run")
    assert len(written) >= 7
    shutil.copy(digit_videos / BAD, damaged / BAD)
    mended = train_on(damaged, f"data.workers={workers}", "run.save_every=100")
    said = []
    fitted = mended.run(tmp_path / "run", resume=True, on_message=said.append)
    assert len(said) == 1  # that it resumes; the video has been named by the run's first process
    # Up to the step that was interrupted all is as before; later the mended file counts.
    assert journal(tmp_path / "run") == written
    assert fitted.replaced == len(written)
    again = record_of(tmp_path / "run")
    trained = [line for line in again["log"] if line["event"] == "step"][:13]
    assert trained == [line for line in whole["log"] if line["event"] == "step"][:13]


@pytest.fixture(scope="module")
def uninterrupted(train_on, digit_videos, record_of, tmp_path_factory):
    """A training on such videos, and what its run does from beginning to end."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    training = train_on(damage(digit_videos, folder / "videos"), "run.save_every=5")
    training.run(folder / "run")
    return training, record_of(folder / "run")


def test_a_resumed_run_writes_no_replacement_twice(uninterrupted, record_of, tmp_path):
    training, whole = uninterrupted
    for step in (3, 12, 21):
        training.run_until(step, tmp_path / "run", resume=True)
    training.run(tmp_path / "run", resume=True)
    assert record_of(tmp_path / "run") == whole


def test_a_journal_that_a_kill_cut_short_is_mended(uninterrupted, record_of, tmp_path):
    training, whole = uninterrupted
    training.run_until(8, tmp_path / "run")
    file = RunFolder(tmp_path / "run").bad_samples
    file.write_bytes(file.read_bytes()[:-7])
    training.run(tmp_path / "run", resume=True)
    assert record_of(tmp_path / "run") == whole


def test_too_many_bad_videos_stop_the_run_and_the_message_names_their_list(make_training, digit_videos, tmp_path):
    videos = tmp_path / "videos"
    shutil.copytree(digit_videos, videos)
    for number in range(3):
        (videos / f"train/7-right/000{number}.mp4").write_bytes(b"not a video")
    training = make_training("run.bad_limit=0.05", videos=videos)
    said = []
    with pytest.raises(DataError) as caught:
        training.run(tmp_path / "run", on_message=said.append)
    # 32 samples are in the first step, and after 24 of them a share means something.
    assert len({line["position"] for line in journal(tmp_path / "run")}) == 5
    assert str(caught.value) == (
        "5 of the first 32 samples could not be read (15.6%, of 3 bad files); run.bad_limit allows 5.0%. They are "
        f"listed in {tmp_path / 'run' / 'bad_samples.jsonl'}, and `vcycle check` finds every bad file. "
        f"`vcycle train {tmp_path / 'run'} --resume run.bad_limit=0.25` continues without them"
    )
    assert len(said) == 3
    assert steps(tmp_path / "run") == []
    tolerant = make_training("run.bad_limit=0.25", videos=videos)
    assert tolerant.run(tmp_path / "run", resume=True).replaced > 3


@pytest.mark.parametrize(("clips", "enough"), [(24, 24), (200, 200), (5000, 200)])
def test_a_share_of_bad_samples_counts_from_200_on_or_from_all_clips_of_a_smaller_set(tmp_path, clips, enough):
    with Journal(tmp_path / "bad_samples.jsonl", Totals(), first=0, clips=clips, limit=0.1) as journal:
        journal.count(enough - 1, enough - 1)
        with pytest.raises(DataError, match=rf"{enough} of the first {enough} samples could not be read"):
            journal.count(1, 1)


def test_one_bad_file_is_within_any_limit_but_none_and_two_are_not(tmp_path):
    def seen(replaced, limit=0.05, clips=17, repeats=1):
        file = tmp_path / "bad_samples.jsonl"
        with Journal(file, Totals(), first=0, clips=clips, repeats=repeats, limit=limit) as journal:
            for count in replaced:
                journal.count(8, count)

    seen([1, 0, 1, 0, 1, 0, 1])  # 4 of 56, in the fourth epoch
    with pytest.raises(DataError, match="3 of the first 24 samples"):
        seen([1, 1, 1])
    seen([2, 0, 0, 0, 2], repeats=2)  # both clips of a file in each of two passes
    with pytest.raises(DataError, match="4 of the first 24 samples"):
        seen([2, 2, 0], repeats=2)
    with pytest.raises(DataError, match="1 of the first 24 samples"):
        seen([1, 0, 0], limit=0.0)
    with pytest.raises(DataError, match="11 of the first 200 samples"):
        seen([1] * 11 + [0] * 14, clips=1000)


def test_a_set_without_a_readable_video_stops_the_run_at_once(make_training, digit_videos, tmp_path):
    videos = tmp_path / "videos"
    shutil.copytree(digit_videos, videos)
    for file in (videos / "train").rglob("*.mp4"):
        file.write_bytes(b"")
    with pytest.raises(DataError, match=r"16 videos in a row cannot be read, the last: .*mp4: "):
        make_training("run.bad_limit=1", videos=videos).run(tmp_path / "run")


def test_a_video_with_missing_frames_is_used_and_named(make_training, noise, tmp_path, training):
    class Gaps(type(noise)):
        def __getitem__(self, request):
            sample = super().__getitem__(request)
            fault = f"videos/a: b.mp4: {request.shape.frames - 1} of {request.shape.frames} frames cannot be decoded"
            return dataclasses.replace(sample, fault=fault) if request.index == 5 else sample

    said = []
    fit(
        plan=training.plan,
        model=build_model(training.recipe, 4),
        dataset=Gaps(),
        objective=RECOGNITION.objective(training.recipe, 4),
        config=config_of(training.recipe),
        run=RunFolder(tmp_path),
        callbacks=Callbacks(on_message=said.append),
    )
    assert said == ["damaged video videos/a: b.mp4: 1 of 2 frames cannot be decoded"]
    logged = [line["faults"] for line in steps(tmp_path) if "faults" in line]
    assert sum(map(len, logged)) == 13
