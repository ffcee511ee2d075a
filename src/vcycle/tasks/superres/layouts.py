"""The layouts of clips to enlarge, by name. Needs no torch until one is looked up."""

from vcycle.data.layouts.layout import LayoutRegistry

__all__ = ["LAYOUTS"]

LAYOUTS = LayoutRegistry("layout", "vcycle.layouts.superresolution")
"""In the order in which they are tried."""

for _name in ("vid4", "udm10", "reds", "vimeo90k", "clips"):
    LAYOUTS.register_lazily(_name, f"vcycle.tasks.superres.pairs.layouts:{_name.upper()}")
