"""Optional dependencies, imported on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vcycle.errors import VcycleError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["NotInstalledError", "new_figure", "require"]

_EXTRAS = {
    "lightning": ("vcycle.integrations.lightning needs", "lightning"),
    "matplotlib": ("plots need", "plots"),
    "sklearn": ("the demo needs", "demo"),
    "transformers": ("vcycle.integrations.transformers needs", "transformers"),
}
_PACKAGES = {"sklearn": "scikit-learn"}


class NotInstalledError(VcycleError, ImportError):
    """An optional library is not installed."""


def require(module: str) -> Any:
    """Import a module of an optional library.

    Raises:
        NotInstalledError: if the library is not installed, with the command that installs it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        library = module.partition(".")[0]
        use, extra = _EXTRAS[library]
        package = _PACKAGES.get(library, library)
        raise NotInstalledError(f"{use} {package}, which is not installed: pip install 'vcycle[{extra}]'") from error


def new_figure(**options: Any) -> "Figure":
    """Create an empty matplotlib figure, without pyplot's global state. Options are those of ``Figure``.

    Raises:
        NotInstalledError: if matplotlib is not installed.
    """
    figure: Figure = require("matplotlib.figure").Figure(**options)
    return figure
