"""Video super-resolution models: RGB frames ``(B, T, 3, H, W)`` in 0..1 in, ×4 upscaled frames out.

Names, options and shape constraints need no torch.

Example:
    >>> needs("edvr_m").window
    5
    >>> sum(p.numel() for p in build_model("edvr_m").parameters())
    3300131
"""

from vcycle.tasks.models import ModelRegistry
from vcycle.tasks.superres.models import basicvsr, edvr

__all__ = ["MODELS", "build_model", "names", "needs"]

MODELS = ModelRegistry("superresolution", {**basicvsr.MODELS, **edvr.MODELS}, attributes=("window", "outputs"))
build_model = MODELS.build
names = MODELS.names
needs = MODELS.needs
