"""Choices that several families of models have as options."""

from typing import Literal

__all__ = ["Block", "NonLocalForm"]

Block = Literal["basic", "bottleneck"]
"""Kinds of residual blocks."""
NonLocalForm = Literal["dot", "softmax"]
"""How non-local blocks weigh: `dot` (Wang et al. 2018) or `softmax` (the public configurations)."""
