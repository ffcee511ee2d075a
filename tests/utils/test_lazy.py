"""Packages whose names are imported on first use."""

import importlib

import pytest

import vcycle

PACKAGES = ("vcycle", "vcycle.data", "vcycle.nn", "vcycle.tasks.recognition", "vcycle.tasks.superres")


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_has_every_name_that_it_lists(name):
    package = importlib.import_module(name)
    for exported in package.__all__:
        assert callable(getattr(package, exported)), exported
    assert {*package.__all__, "__all__", "__doc__", "__name__"} <= set(dir(package))
    with pytest.raises(AttributeError, match=f"^module '{name}' has no attribute 'nothing'$"):
        package.nothing  # noqa: B018


@pytest.mark.parametrize("name", PACKAGES)
def test_no_exported_name_is_also_a_submodule(name):
    """Importing the submodule would replace the name."""
    package = importlib.import_module(name)
    taken = [exported for exported in package.__all__ if importlib.util.find_spec(f"{name}.{exported}") is not None]
    assert not taken


def test_subpackages_are_attributes_without_an_import_of_their_own():
    """The documentation writes `vcycle.nn.any_shape(model)` after `import vcycle`."""
    for name in ("data", "nn"):
        assert vcycle.__getattr__(name) is importlib.import_module(f"vcycle.{name}")
        assert name in dir(vcycle)
