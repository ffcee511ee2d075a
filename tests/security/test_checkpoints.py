"""A checkpoint from anywhere: read, or refused in one line. Nothing in it runs, and it does not grow."""

import io
import os
import pickle
import pickletools
import zipfile
from itertools import pairwise

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vcycle.errors import CheckpointError
from vcycle.nn.weights.files import read_weights
from vcycle.plan import Baseline, multigrid
from vcycle.tasks.recognition import RecognitionMetrics
from vcycle.train.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from vcycle.train.config import OptimizerSection
from vcycle.train.optimizer import build_optimizer
from vcycle.train.run import RunFolder
from vcycle.train.state import TrainState

PLAN = multigrid(Baseline(batch=4, frames=8, size=64, clips=37, epochs=12, lr=0.1))
unshared = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def state(folder):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    return TrainState(
        run=RunFolder(folder),
        plan=PLAN,
        seed=3,
        model=model,
        optimizer=build_optimizer(OptimizerSection(name="adamw"), model),
    )


def saved(folder, **changes):
    learned = state(folder)
    learned.model(torch.randn(4, 3)).sum().backward()
    learned.optimizer.step()
    values = {
        "step": 5,
        "plan": PLAN,
        "seed": 3,
        "model": learned.model.state_dict(),
        "optimizer": learned.optimizer.state_dict(),
        "optimizer_kind": "AdamW",
        "totals": learned.totals.as_data(),
    }
    return save_checkpoint(folder / "checkpoints", Checkpoint(**{**values, **changes}))


class Contents(bytes):
    """The contents of a file, not to be shown."""

    def __repr__(self):
        return f"<{len(self)} bytes>"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The contents of a checkpoint."""
    return Contents(saved(tmp_path_factory.mktemp("whole")).read_bytes())


def tried(read, *args):
    """Read; the reason where it is refused."""
    try:
        read(*args)
    except CheckpointError as error:
        said = str(error)
    else:
        return None
    assert "\n" not in said
    return said


def everything(folder, content):
    """Read a checkpoint in all the ways there are."""
    file = folder / "checkpoints" / "step-000000005.pt"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)
    tried(load_checkpoint, file)
    tried(read_weights, file)
    tried(state(folder).restore, lambda _: None, RecognitionMetrics)


@st.composite
def cuts(draw):
    """Places of a file that are overwritten, as a share of it, with what."""
    return draw(st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=6)), min_size=1, max_size=4))


def overwritten(content, places):
    content = bytearray(content)
    for share, piece in places:
        at = int(share * (len(content) - 1))
        content[at : at + len(piece)] = piece
    return bytes(content)


@unshared
@given(places=cuts(), keep=st.one_of(st.none(), st.floats(0, 1)))
def test_a_damaged_file_is_read_or_refused_in_one_line(whole, tmp_path, places, keep):
    content = overwritten(whole, places)
    everything(tmp_path, content if keep is None else content[: int(keep * len(content))])


def repacked(content, change, how=zipfile.ZIP_STORED):
    """The file again with other members, and right checksums: what damage never is, but malice."""
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(packed, "w", how) as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
    return packed.getvalue()


@unshared
@given(places=cuts())
def test_so_is_one_whose_program_was_changed_and_sealed_again(whole, tmp_path, places):
    everything(tmp_path, repacked(whole, lambda name, x: overwritten(x, places) if name.endswith("data.pkl") else x))


@unshared
@given(st.data())
def test_so_is_one_whose_words_of_the_program_were_exchanged(whole, tmp_path, data):
    def change(name, content):
        if not name.endswith("data.pkl"):
            return content
        operations = list(pickletools.genops(content))
        starts = [at for _, _, at in operations] + [len(content)]
        pieces = [content[a:b] for a, b in pairwise(starts)]
        for _ in range(data.draw(st.integers(1, 4))):
            place, other = (data.draw(st.integers(0, len(pieces) - 1)) for _ in range(2))
            pieces[place] = pieces[other]
        return b"".join(pieces)

    everything(tmp_path, repacked(whole, change))


FIELDS = ("step", "seed", "model", "optimizer", "optimizer_kind", "totals", "plan")
JUNK = (None, -1, 10**9, 1.5, "x", b"x", [], {}, [1], {"a": 1}, {"param_groups": [{}]}, torch.zeros(2), True)


@unshared
@given(
    st.sampled_from(["step", "seed", "model", "optimizer", "optimizer_kind", "totals", "plan"]), st.sampled_from(JUNK)
)
def test_so_is_one_of_the_right_fields_and_the_wrong_values(whole, tmp_path, field, value):
    contents = torch.load(io.BytesIO(whole), weights_only=True)
    written = io.BytesIO()
    torch.save(contents | {field: value}, written)
    everything(tmp_path, written.getvalue())


class Harmful:
    def __reduce__(self):
        return os.system, ("touch harmed",)


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_nothing_in_a_checkpoint_is_executed(whole, tmp_path, monkeypatch, protocol):
    monkeypatch.chdir(tmp_path)
    harmful = pickle.dumps({"format": 1, "step": Harmful(), "state_dict": Harmful()}, protocol)
    everything(tmp_path, repacked(whole, lambda name, x: harmful if name.endswith("data.pkl") else x))
    everything(tmp_path, harmful)
    assert not (tmp_path / "harmed").exists()


def test_an_archive_that_would_grow_is_refused_before_it_does(whole, tmp_path):
    packed = repacked(whole, lambda name, x: bytes(1 << 26) if "data/0" in name else x, zipfile.ZIP_DEFLATED)
    assert len(packed) < 1 << 17
    path = tmp_path / "step-000000005.pt"
    path.write_bytes(packed)
    assert "its contents are compressed, which a checkpoint's are not" in tried(load_checkpoint, path)
    assert "its contents are compressed" in tried(read_weights, path)
