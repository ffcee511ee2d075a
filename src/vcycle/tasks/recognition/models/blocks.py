"""Residual blocks that the 3-D networks share: convolutions without bias, BatchNorm, ReLU after the sum."""

from typing import ClassVar

from torch import Tensor, nn

from vcycle.tasks.recognition.models.nonlocal_block import NonLocalBlock

__all__ = ["BasicBlock", "BottleneckBlock", "ConvNorm", "initialise"]


def initialise(model: nn.Module, *, zero_gamma: bool = True) -> None:
    """Initialise a network: convolutions Kaiming normal (fan out), the classifier N(0, 0.01).

    Args:
        model: the network, in place.
        zero_gamma: start each residual and non-local block as the identity, by a zero scale in its last BatchNorm.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv3d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.01)
            nn.init.zeros_(module.bias)
        elif zero_gamma and isinstance(module, _ResidualBlock | NonLocalBlock):
            nn.init.zeros_(module.last_norm.weight)


class ConvNorm(nn.Sequential):
    """A 3-D convolution that keeps the size at stride 1 ("same" padding), BatchNorm and, if asked, ReLU.

    Args:
        channels_in: input channels.
        channels: output channels.
        kernel: extents in time, height and width; odd.
        stride: strides in time, height and width.
        relu: end with ReLU.
    """

    def __init__(
        self,
        channels_in: int,
        channels: int,
        kernel: tuple[int, int, int],
        stride: tuple[int, int, int] = (1, 1, 1),
        *,
        relu: bool = True,
    ) -> None:
        t, h, w = kernel
        layers: list[nn.Module] = [
            nn.Conv3d(channels_in, channels, kernel, stride, padding=(t // 2, h // 2, w // 2), bias=False),
            nn.BatchNorm3d(channels),
        ]
        if relu:
            layers.append(nn.ReLU(inplace=True))
        super().__init__(*layers)


class _ResidualBlock(nn.Module):
    """``relu(shortcut(x) + branch(x))``; the shortcut projects where the shape changes."""

    expansion: ClassVar[int]
    """Output channels per inner channel."""

    def __init__(self, channels_in: int, channels: int, stride: tuple[int, int, int], branch: list[ConvNorm]) -> None:
        super().__init__()
        self.branch = nn.Sequential(*branch)
        self.shortcut: nn.Module = nn.Identity()
        if channels_in != channels or stride != (1, 1, 1):
            self.shortcut = ConvNorm(channels_in, channels, (1, 1, 1), stride, relu=False)
        self.relu = nn.ReLU(inplace=True)

    @property
    def last_norm(self) -> nn.BatchNorm3d:
        """The BatchNorm just before the sum."""
        norm: nn.BatchNorm3d = self.branch[-1][1]  # type: ignore[index]
        return norm

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output, ``(B, C, T, H, W)``."""
        output: Tensor = self.relu(self.branch(x) + self.shortcut(x))
        return output


class BasicBlock(_ResidualBlock):
    """Two convolutions ``(t, 3, 3)``.

    Args:
        channels_in: input channels.
        width: channels inside and out.
        temporal_kernel: extent in time of both convolutions.
        stride: of the first convolution.
    """

    expansion = 1

    def __init__(
        self, channels_in: int, width: int, temporal_kernel: int, stride: tuple[int, int, int] = (1, 1, 1)
    ) -> None:
        kernel = (temporal_kernel, 3, 3)
        branch = [ConvNorm(channels_in, width, kernel, stride), ConvNorm(width, width, kernel, relu=False)]
        super().__init__(channels_in, width, stride, branch)


class BottleneckBlock(_ResidualBlock):
    """Convolutions ``(t, 1, 1)``, ``(1, 3, 3)`` and ``(1, 1, 1)``, the last one four times as wide.

    Args:
        channels_in: input channels.
        width: channels inside; outside four times as many.
        temporal_kernel: extent in time of the first convolution.
        stride: of the ``(1, 3, 3)`` convolution in space, of the first in time.
    """

    expansion = 4

    def __init__(
        self, channels_in: int, width: int, temporal_kernel: int, stride: tuple[int, int, int] = (1, 1, 1)
    ) -> None:
        channels = width * self.expansion
        t, h, w = stride
        branch = [
            ConvNorm(channels_in, width, (temporal_kernel, 1, 1), (t, 1, 1)),
            ConvNorm(width, width, (1, 3, 3), (1, h, w)),
            ConvNorm(width, channels, (1, 1, 1), relu=False),
        ]
        super().__init__(channels_in, channels, stride, branch)
