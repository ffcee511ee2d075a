"""torchvision's video models by name: what they need of a shape, and their own weights, without a download."""

import pytest
import torch

from vcycle.errors import RecipeError
from vcycle.tasks.recognition.models import MODELS, build_model, names, needs
from vcycle.utils.extras import NotInstalledError

models = pytest.importorskip("torchvision.models")

CLASSES = 7
TORCHVISION = tuple(name for name in names() if MODELS.find(name).downloads)
FETCH = "torchvision.models._api.load_state_dict_from_url"


@pytest.fixture(autouse=True)
def no_downloads(monkeypatch):
    """A download is an error, and so is what lies in torchvision's cache."""

    def refuse(url, *args, **kwargs):
        raise AssertionError(f"a test would download {url}")

    monkeypatch.setattr(FETCH, refuse)


@pytest.fixture
def fetched(monkeypatch):
    """Serves weights as drawn, of 400 classes, in place of the trained ones; lists the files asked for."""
    asked = []

    def serve(url, *args, **kwargs):
        asked.append(url.rsplit("/", 1)[1])
        with torch.device("meta"):
            return models.get_model(asked[-1].partition("-")[0], weights=None).state_dict()

    monkeypatch.setattr(FETCH, serve)
    return asked


def logits(model, frames, height, width):
    return model(torch.empty((1, 3, frames, height, width), device="meta"))


@pytest.mark.parametrize("name", TORCHVISION)
def test_below_what_a_model_needs_it_fails_and_so_the_need_is_true(name):
    asked = needs(name)
    with torch.device("meta"):
        model = build_model(name, CLASSES).eval()
    below = []
    if asked.min_frames > 1:
        below.append((asked.min_frames - 1, 64, 64))
    if asked.min_size > 1:
        below.append((16, asked.min_size - 1, asked.min_size - 1))
    if asked.fixed is not None:
        below += [(8, 224, 224), (16, 158, 158)]
    for shape in below:
        with pytest.raises((RuntimeError, ValueError)):
            logits(model, *shape)


# Weights copied to the meta device do nothing, of which torch warns.
@pytest.mark.filterwarnings("ignore:for .*copying from a non-meta parameter", "ignore:for .*no-op")
@pytest.mark.parametrize("name", ["r3d_18", "s3d"])
def test_weights_are_torchvisions_and_their_head_is_replaced_unless_the_classes_agree(name, fetched):
    with torch.device("meta"):
        model = build_model(name, CLASSES, weights="KINETICS400_V1").eval()
        kept = build_model(name, 400, weights="KINETICS400_V1").eval()
    assert [file.startswith(name) for file in fetched] == [True, True]
    assert logits(model, 16, 64, 64).shape == (1, CLASSES)
    assert logits(kept, 16, 64, 64).shape == (1, 400)


@pytest.mark.parametrize("name", TORCHVISION)
def test_every_model_has_weights_of_kinetics(name):
    assert "KINETICS400_V1" in models.get_model_weights(name).__members__


def test_without_weights_nothing_is_fetched(fetched):
    with torch.device("meta"):
        build_model("r3d_18", CLASSES)
    assert fetched == []


def test_unknown_weights_are_refused_with_the_known_ones():
    with pytest.raises(RecipeError, match="accepted: KINETICS400_V1"):
        build_model("r3d_18", CLASSES, weights="KINETICS")


def test_weights_that_cannot_be_fetched_are_an_error_of_one_line(monkeypatch):
    def no_network(url, *args, **kwargs):
        raise OSError("no route to host")

    monkeypatch.setattr(FETCH, no_network)
    with torch.device("meta"), pytest.raises(RecipeError, match="could not be loaded: no route"):
        build_model("r3d_18", CLASSES, weights="KINETICS400_V1")


def test_dropout_is_an_option_where_there_is_one():
    with torch.device("meta"):
        assert build_model("s3d", CLASSES, dropout=0.4).classifier[0].p == 0.4
        with pytest.raises(RecipeError, match="no dropout"):
            build_model("r3d_18", CLASSES, dropout=0.4)


def test_missing_torchvision_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torchvision.models", None)
    said = r"model 'r3d_18' needs torchvision, which is not installed: pip install torchvision torch==\d+\.\d+\.\d+$"
    with pytest.raises(NotInstalledError, match=said):
        build_model("r3d_18", CLASSES)
