import errno
import io
import os
import pickle
import random
import shutil
import zipfile

import pytest
import torch

from vcycle.errors import CheckpointError
from vcycle.plan import Baseline, multigrid
from vcycle.train.checkpoint import Checkpoint, latest_checkpoint, load_checkpoint, load_weights, save_checkpoint
from vcycle.train.run import RunFolder

PLAN = multigrid(Baseline(batch=4, frames=8, size=64, clips=37, epochs=12, lr=0.1))


def make(step=0, **changes):
    torch.manual_seed(step)
    model = torch.nn.Sequential(torch.nn.Linear(30, 40), torch.nn.BatchNorm1d(40))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.randn(4, 30)).sum().backward()
    optimizer.step()
    values = {
        "step": step,
        "plan": PLAN,
        "seed": 3,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "optimizer_kind": "SGD",
        "totals": {"seen": 12, "seconds": 1.5, "curve": []},
    }
    return Checkpoint(**{**values, **changes})


def same(one, other):
    assert (one.step, one.plan, one.seed, one.totals) == (other.step, other.plan, other.seed, other.totals)
    assert one.model.keys() == other.model.keys()
    assert all(torch.equal(one.model[key], other.model[key]) for key in one.model)
    assert one.optimizer["param_groups"] == other.optimizer["param_groups"]
    for key, state in one.optimizer["state"].items():
        assert torch.equal(state["momentum_buffer"], other.optimizer["state"][key]["momentum_buffer"])
    return True


def test_what_was_saved_comes_back(tmp_path):
    path = save_checkpoint(tmp_path / "new" / "folder", make(7))
    assert path.name == "step-000000007.pt"
    assert same(load_checkpoint(path), make(7))


def test_the_two_newest_are_kept(tmp_path):
    for step in (0, 9, 10, 100):
        save_checkpoint(tmp_path, make(step))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["step-000000010.pt", "step-000000100.pt"]


def test_what_a_kill_left_half_written_goes_with_the_next_save(tmp_path):
    (tmp_path / "step-000000003.pt.partial").write_bytes(b"half a checkpoint")
    assert latest_checkpoint(tmp_path) is None
    save_checkpoint(tmp_path, make(4))
    assert [file.name for file in tmp_path.iterdir()] == ["step-000000004.pt"]


def test_a_folder_without_checkpoints_has_none(tmp_path):
    assert latest_checkpoint(tmp_path) is None
    assert latest_checkpoint(tmp_path / "nowhere") is None


@pytest.mark.parametrize("left", [0, 1, 1000, -1])
def test_a_truncated_newest_falls_back_to_the_one_before_and_says_so(tmp_path, left):
    before, newest = (save_checkpoint(tmp_path, make(step)) for step in (5, 6))
    newest.write_bytes(newest.read_bytes()[:left])
    checkpoint, path, passed = latest_checkpoint(tmp_path)
    assert same(checkpoint, make(5))
    assert path == before
    (said,) = passed
    assert said.startswith(f"checkpoint {newest} cannot be read: ")
    assert "\n" not in said


def test_if_none_can_be_read_it_is_an_error_that_names_them(tmp_path):
    for step in (5, 6):
        save_checkpoint(tmp_path, make(step)).write_bytes(b"PK nonsense")
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* can be read: .*step-000000006.*step-000000005"):
        latest_checkpoint(tmp_path)


def test_a_flipped_bit_is_detected_wherever_it_matters(tmp_path):
    path = save_checkpoint(tmp_path, make(5))
    content = path.read_bytes()
    draws = random.Random(0)
    detected = 0
    for _ in range(300):
        place = draws.randrange(len(content))
        damaged = bytearray(content)
        damaged[place] ^= 1 << draws.randrange(8)
        path.write_bytes(damaged)
        try:
            checkpoint = load_checkpoint(path)
        except CheckpointError:
            detected += 1
        else:  # a byte that nothing is read from, such as padding or a date
            assert same(checkpoint, make(5))
    assert detected > 200


def test_every_flipped_bit_of_the_weights_is_detected(tmp_path):
    path = save_checkpoint(tmp_path, make(5))
    content = path.read_bytes()
    weight = make(5).model["0.weight"].numpy().tobytes()
    start = content.index(weight)
    for place in range(start, start + len(weight), 97):
        path.write_bytes(content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :])
        with pytest.raises(CheckpointError, match="checksum"):
            load_checkpoint(path)


def test_a_flipped_bit_that_makes_a_folder_of_a_tensor_is_detected(tmp_path):
    """PyTorch's reader passes over a folder, and gives what happens to be in memory."""
    path = save_checkpoint(tmp_path, make(5))
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"PK\x01\x02", 0, content.rindex(b"/data/0"))  # in the archive's list of contents
    content[entry + 38] ^= 0x10
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="marked as a folder"):
        load_checkpoint(path)


class Harmful:
    def __reduce__(self):
        return os.system, ("touch harmed",)


@pytest.mark.parametrize("as_zip", [True, False])
def test_a_file_that_would_run_code_is_refused(tmp_path, monkeypatch, as_zip):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "step-000000001.pt"
    torch.save({"format": 1, "step": Harmful()}, path, _use_new_zipfile_serialization=as_zip)
    with pytest.raises(CheckpointError, match=r"step-000000001.pt cannot be read") as caught:
        load_checkpoint(path)
    assert "\n" not in str(caught.value)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    # The same file does harm where it is trusted.
    torch.load(path, weights_only=False)
    assert (tmp_path / "harmed").exists()


@pytest.mark.parametrize("content", [{"state_dict": {}}, [1, 2], {"format": 2}])
def test_a_file_of_another_program_is_named_as_such(tmp_path, content):
    path = tmp_path / "step-000000001.pt"
    torch.save(content, path)
    with pytest.raises(CheckpointError, match=r"step-000000001.pt is not a vcycle checkpoint \(format 1\)"):
        load_checkpoint(path)


@pytest.mark.parametrize("change", [{"plan": None}, {"plan": '{"kind": "Elevator"}'}, {"seed": None}, {"more": 1}])
def test_a_checkpoint_of_another_version_is_named_as_such(tmp_path, change):
    path = save_checkpoint(tmp_path, make(1))
    data = {**torch.load(path, weights_only=True), **change}
    torch.save({key: value for key, value in data.items() if value is not None}, path)
    with pytest.raises(CheckpointError, match="is from another version of vcycle"):
        load_checkpoint(path)


def test_a_plain_pickle_or_archive_is_refused(tmp_path):
    for content in (pickle.dumps({"format": 1}), b"", b"no checkpoint at all"):
        (tmp_path / "x.pt").write_bytes(content)
        with pytest.raises(CheckpointError, match=r"x.pt cannot be read"):
            load_checkpoint(tmp_path / "x.pt")
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("readme", "hello")
    (tmp_path / "x.pt").write_bytes(archive.getvalue())
    with pytest.raises(CheckpointError, match=r"x.pt cannot be read"):
        load_checkpoint(tmp_path / "x.pt")


def test_weights_of_another_model_are_refused_by_name(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(30, 40), torch.nn.BatchNorm1d(40))
    load_weights(model, make(5).model, tmp_path)
    assert torch.equal(model[0].weight, make(5).model["0.weight"])
    other = torch.nn.Sequential(torch.nn.Linear(30, 41), torch.nn.Identity(), torch.nn.Linear(2, 2, bias=False))
    with pytest.raises(CheckpointError, match="belongs to another model") as caught:
        load_weights(other, make(5).model, tmp_path)
    for part in (
        "0.weight is (40, 30), the model has (41, 30)",
        "missing 2.weight (1 in all)",
        "unexpected 1.weight, 1.bias, 1.running_mean (5 in all)",
    ):
        assert part in str(caught.value)


# A disk that is full ----------------------------------------------------------------------------------------


def test_a_full_disk_keeps_the_checkpoint_before_and_leaves_nothing_behind(tmp_path):
    resource = pytest.importorskip("resource")

    def save(step, values):
        return save_checkpoint(tmp_path, make(step, model={"weight": torch.zeros(values)})).name

    assert save(1, 1000) == "step-000000001.pt"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(CheckpointError) as caught:
            save(2, 100_000)
        assert save(3, 1000) == "step-000000003.pt"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert str(caught.value) == (
        f"checkpoint {tmp_path}/step-000000002.pt cannot be saved ([Errno 27] File too large); "
        f"the last one is {tmp_path}/step-000000001.pt"
    )
    assert sorted(file.name for file in tmp_path.iterdir()) == ["step-000000001.pt", "step-000000003.pt"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_whatever_fails_while_saving_the_checkpoint_before_stays(tmp_path, monkeypatch, call):
    before = save_checkpoint(tmp_path, make(1))

    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(
        CheckpointError, match=r"cannot be saved \(.*No space left on device\); the last one is .*01.pt"
    ):
        save_checkpoint(tmp_path, make(2))
    monkeypatch.undo()
    assert [file.name for file in tmp_path.iterdir()] == [before.name]
    assert same(load_checkpoint(before), make(1))


def test_a_folder_that_cannot_be_made_is_an_error_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"cannot be saved .*Not a directory.*there is none before it"):
        save_checkpoint(tmp_path / "file" / "checkpoints", make(1))


# Checkpoints of something else ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("training.steps=97", r"started with plan long\+short .* gives long\+short .*: resume with the run's own"),
        ("plan=short", r"started with plan long\+short .* gives short .*: resume with the run's own"),
        ("run.seed=1", r"step-000000003.pt .*with seed 0; .* with seed 1: resume with the run's own recipe"),
        (
            "model.options.widths=[4, 12]",
            r"step-000000003.pt belongs to another model: .*\(8, 4, 3, 3, 3\), the model has \(12, 4, 3, 3, 3\)",
        ),
        ("model=slowfast_tiny", r"step-000000003.pt belongs to another model"),
        ("optimizer=adamw", r"step-000000003.pt was made with SGD, this recipe has AdamW"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(training, make_training, begun, override, said):
    extra = ["model.options={alpha: 2}"] if "slowfast" in override else []  # it takes the 2 frames of the plan
    other = make_training("data.cache=24", override, *extra)
    files = {file: file.read_bytes() for file in begun.rglob("*") if file.is_file()}
    with pytest.raises(CheckpointError, match=said) as caught:
        other.run(begun, resume=True)
    assert str(begun) in str(caught.value)
    assert {file: file.read_bytes() for file in begun.rglob("*") if file.is_file()} == files


@pytest.fixture(scope="module")
def begun(training, tmp_path_factory):
    folder = tmp_path_factory.mktemp("begun")
    training.run_until(3, folder)
    RunFolder(folder).recipe.unlink()  # which is compared first: what follows is what checkpoints tell by themselves
    return folder


def test_a_damaged_newest_checkpoint_costs_a_few_steps_and_nothing_else(training, begun, record_of, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(begun, folder)
    newest = folder / "checkpoints" / "step-000000003.pt"
    newest.write_bytes(newest.read_bytes()[:5000])
    said = []
    training.run(folder, resume=True, on_message=said.append)
    assert said[0].startswith(f"skipped: checkpoint {newest} cannot be read")
    assert said[1].startswith("resuming at step 2 of 29")
    training.run(tmp_path / "whole")
    assert record_of(folder) == record_of(tmp_path / "whole")
