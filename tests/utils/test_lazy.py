"""Packages whose names are imported on first use."""

import importlib

import pytest

PACKAGES = ("vcycle", "vcycle.data", "vcycle.nn", "vcycle.tasks.recognition", "vcycle.tasks.superres")


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_has_every_name_that_it_lists(name):
    package = importlib.import_module(name)
    for exported in package.__all__:
        assert callable(getattr(package, exported)), exported
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match=f"^module '{name}' has no attribute 'nothing'$"):
        package.nothing  # noqa: B018


@pytest.mark.parametrize("name", PACKAGES)
def test_no_exported_name_is_also_a_submodule(name):
    """Importing the submodule would replace the name."""
    package = importlib.import_module(name)
    taken = [exported for exported in package.__all__ if importlib.util.find_spec(f"{name}.{exported}") is not None]
    assert not taken
