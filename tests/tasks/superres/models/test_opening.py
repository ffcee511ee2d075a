"""Networks opened from files of weights alone."""

import pytest
import torch

from vcycle.errors import CheckpointError
from vcycle.tasks.superres.models.basicvsr.network import BasicVSR
from vcycle.tasks.superres.models.edvr.network import EDVR
from vcycle.tasks.superres.weights.keys import foreign_keys
from vcycle.tasks.superres.weights.network import open_network

NETWORKS = {
    "BasicVSR of 2 blocks and 8 channels": lambda: BasicVSR(blocks=2, channels=8, head_channels=8),
    "EDVR of 5 frames and 16 channels, with TSA": lambda: EDVR(
        channels=16, groups=8, front_blocks=1, back_blocks=2, head_channels=8
    ),
    "BasicVSR of 1 blocks and 8 channels, without optical flow": lambda: BasicVSR(
        blocks=1, channels=8, head_channels=8, flow="none"
    ),
    "EDVR of 3 frames and 12 channels, with TSA": lambda: EDVR(
        window=3, channels=12, groups=4, front_blocks=1, back_blocks=1, head_channels=8
    ),
    "EDVR of 7 frames and 16 channels, without TSA": lambda: EDVR(
        window=7, channels=16, groups=8, front_blocks=1, back_blocks=1, head_channels=8, attention=False
    ),
}


@pytest.fixture(params=NETWORKS)
def network(request):
    torch.manual_seed(0)
    model = NETWORKS[request.param]().eval()
    torch.nn.init.normal_(model.head.last.weight, std=0.1)
    return request.param, model


@pytest.mark.parametrize(
    ("dialect", "container"), [("basicsr", "params"), ("basicsr", "params_ema"), ("mmagic", "state_dict")]
)
def test_a_network_is_known_by_its_weights(network, dialect, container, tmp_path):
    described, model = network
    state = model.state_dict()
    names = foreign_keys(state, dialect)
    prefix = "generator." if dialect == "mmagic" else ""
    torch.save({container: {prefix + names[key]: value for key, value in state.items()}}, tmp_path / "x.pth")
    opened = open_network(tmp_path / "x.pth")
    assert opened.description.startswith(described)
    frames = model.window or 3
    video = torch.rand(1, frames, 3, 16, 20)
    with torch.no_grad():
        assert torch.equal(opened.model(video), model(video))
    assert not opened.model.training


def test_our_own_names_are_known(network, tmp_path):
    described, model = network
    torch.save(model.state_dict(), tmp_path / "x.pth")
    assert open_network(tmp_path / "x.pth").description == f"{described}, named as vcycle does"


def test_halves_come_back_in_full_precision(tmp_path):
    model = NETWORKS["BasicVSR of 2 blocks and 8 channels"]().half()
    torch.save(model.state_dict(), tmp_path / "x.pth")
    with torch.no_grad():
        assert open_network(tmp_path / "x.pth").model(torch.rand(1, 2, 3, 16, 16)).dtype == torch.float32


def test_weights_that_are_not_a_whole_network_are_refused(tmp_path):
    model = NETWORKS["BasicVSR of 2 blocks and 8 channels"]()
    state = model.state_dict()
    cases = {
        r"2 missing \(head.hr.weight, head.hr.bias\)": {
            key: value for key, value in state.items() if not key.startswith("head.hr")
        },
        "2 missing": {key: value for key, value in state.items() if not key.startswith("fusion")},
        "1 that do not fit": state | {"fusion.bias": torch.zeros(3)},
        "are only a part of a model, such as a flow network; accepted: all": {
            k: v for k, v in state.items() if k.startswith("flow.")
        },
        "unknown tensor names": {"fc.weight": torch.zeros(2, 2)},
    }
    for said, weights in cases.items():
        torch.save(weights, tmp_path / "x.pth")
        with pytest.raises(CheckpointError, match=said):
            open_network(tmp_path / "x.pth")


@pytest.mark.filterwarnings("ignore:Validating sparse tensor invariants")
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (torch.full((8,), torch.nan), "fusion.bias holds numbers that are not finite"),
        (torch.full((8,), -torch.inf), "fusion.bias holds numbers that are not finite"),
        (torch.ones(8, dtype=torch.int64), "fusion.bias is int64; accepted: dense tensors of real numbers"),
        (torch.ones(8).to_sparse(), "fusion.bias is sparse_coo; accepted: dense tensors of real numbers"),
    ],
)
def test_numbers_that_none_can_compute_with_are_refused(value, said, tmp_path):
    state = NETWORKS["BasicVSR of 2 blocks and 8 channels"]().state_dict()
    torch.save(state | {"fusion.bias": value}, tmp_path / "x.pth")
    with pytest.raises(CheckpointError, match=said):
        open_network(tmp_path / "x.pth")
