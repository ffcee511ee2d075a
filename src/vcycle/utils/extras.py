"""Optional dependencies, imported on first use."""

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from vcycle.errors import RecipeError
from vcycle.utils.versions import pip_torchvision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["OPTIONAL", "NotInstalledError", "check_installed", "new_figure", "require"]

OPTIONAL = {
    "torchvision": "torchvision's models, augmentation, EDVR",
    "matplotlib": "figures and pages",
    "sklearn": "the demo",
    "fsspec": "videos at URLs",
    "lightning": "Lightning",
    "transformers": "Hugging Face's models and Trainer",
    "accelerate": "Hugging Face's Trainer",
    "onnxscript": "export to ONNX",
    "onnx": "export to ONNX",
    "onnxruntime": "checking the export to ONNX",
    "tensorboard": "a log for TensorBoard",
    "ray": "preparing and predicting on a cluster",
}
"""What optional libraries are for."""

_USES = {
    "fsspec": "URLs need",
    "lightning": "vcycle.integrations.lightning needs",
    "matplotlib": "plots need",
    "ray": "--engine ray needs",
    "sklearn": "the demo needs",
    "transformers": "vcycle.integrations.transformers needs",
}
_PACKAGES = {"sklearn": "scikit-learn"}
_EXTRAS = {"matplotlib": "plots", "onnxscript": "onnx", "sklearn": "demo"}
"""The extra that installs a library, if it has another name."""


class NotInstalledError(RecipeError, ImportError):
    """An optional library that is needed is not installed, or cannot be imported; says how to install it."""


def _not_installed(library: str, use: str | None, cause: str) -> NotInstalledError:
    use, package = use or _USES[library], _PACKAGES.get(library, library)
    extra = _EXTRAS.get(library, library)
    # Without torch's version, pip replaces torch by the newest, with which the newest torchvision goes.
    command = pip_torchvision() if library == "torchvision" else f"pip install 'vcycle[{extra}]'"
    return NotInstalledError(f"{use} {package}, which {cause}: {command}")


def require(module: str, use: str | None = None) -> Any:
    """Import a module of an optional library.

    Args:
        module: The module.
        use: What needs it, for the message: `plots need`.

    Raises:
        NotInstalledError: if the library is not installed or cannot be imported, with the command that installs it.
    """
    try:
        return import_module(module)
    except (ImportError, RuntimeError) as error:  # torchvision for another torch fails when it registers its operators
        cause = "is not installed" if isinstance(error, ModuleNotFoundError) else f"cannot be imported ({error})"
        raise _not_installed(module.partition(".")[0], use, cause) from error


def check_installed(library: str, use: str) -> None:
    """Check that an optional library is installed, without importing it; as `require`."""
    found = sys.modules[library] if library in sys.modules else find_spec(library)
    if found is None:
        raise _not_installed(library, use, "is not installed")


def new_figure(**options: Any) -> "Figure":
    """Create an empty matplotlib figure, without pyplot's global state. Options are those of ``Figure``.

    Its ticks are plain numbers, and its letters come from any installed font that has them.

    Raises:
        NotInstalledError: if matplotlib is not installed.
    """
    require("matplotlib.figure")
    figure: Figure = import_module("vcycle.utils.plain_figure").PlainFigure(**options)
    return figure
