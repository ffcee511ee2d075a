"""Configuration of the documentation site: `sphinx-build -W -c docs . OUT`, from the root of the repository.

Pages are the Markdown files that GitHub shows too, so links between them, to examples and to results stay relative.
"""

import importlib
import inspect
import re
from importlib.util import find_spec
from typing import Any

import vcycle

project = "vcycle"
author = "vcycle's contributors"
copyright = author
version = release = vcycle.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
root_doc = "docs/index"
include_patterns = ["docs/**", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/*/README.md"]
nitpicky = False

myst_heading_anchors = 4  # as GitHub makes them
myst_enable_extensions = ["colon_fence", "deflist"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
default_role = "literal"  # docstrings write code in single backticks
smartquotes = False  # dashes of options are dashes
autodoc_mock_imports = [name for name in ("lightning", "transformers") if find_spec(name) is None]
autodoc_default_options = {"members": True}
napoleon_numpy_docstring = False
napoleon_preprocess_types = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100

html_theme = "furo"
html_title = "vcycle"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_show_sphinx = False

for module in ("vcycle", "vcycle.data", "vcycle.nn"):  # names that are loaded when first used
    found = importlib.import_module(module)
    for name in found.__all__:
        getattr(found, name)

COLON = "\ue000"


def setup(app: Any) -> None:
    """Keep colons in the first lines of attributes: napoleon (priority 500) takes what stands before for a type."""
    app.connect("autodoc-process-signature", _readable)
    app.connect("autodoc-process-docstring", _hide_colon, priority=499)
    app.connect("autodoc-process-docstring", _show_colon, priority=501)


def _readable(_: Any, what: str, name: str, found: Any, options: Any, taken: str | None, given: str | None) -> Any:
    """Signatures as one writes them: short names, and `...` for defaults that are objects or long."""
    if taken is None:
        return None
    if what == "class" and taken.startswith("(*args"):  # of a protocol, or of a base class that is not installed here
        own = vars(found).get("__init__")
        if own is None or getattr(found, "_is_protocol", False):
            return "", given
        _, *others = inspect.signature(own).parameters.values()
        taken = str(inspect.Signature(others))
    return _short(taken), given and _short(given)


def _short(text: str) -> str:
    text = re.sub(r"~?\b(?:[a-z_]+\.)+(?=[A-Z_])", "", text.replace("~", ""))
    text = re.sub(r"ndarray\[tuple\[Any, \.\.\.\], dtype\[(\w+)\]\]", r"NDArray[\1]", text)
    text = re.sub(r"<(?:[^<>]|<[^<>]*>)*>", "...", text)
    return re.sub(r"= ?\w+\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)", "=...", text)


def _hide_colon(_: Any, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    if what in ("attribute", "property", "data") and lines:
        lines[0] = lines[0].replace(":", COLON)


def _show_colon(_: Any, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    lines[:] = [line.replace(COLON, ":") for line in lines]
