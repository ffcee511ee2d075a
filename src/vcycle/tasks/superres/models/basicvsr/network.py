"""BasicVSR itself."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vcycle.errors import PlanError
from vcycle.tasks.superres.models.basicvsr import BasicVSROptions
from vcycle.tasks.superres.models.basicvsr.flow import SpyNet, grid_of, sample
from vcycle.tasks.superres.models.blocks import (
    Upsampler,
    check_video,
    conv3x3,
    count_layers,
    grouped,
    head_channels,
    leaky,
    recomputed,
    residual_blocks,
    start_leaky,
    start_on_structure,
)
from vcycle.tasks.superres.scale import SCALE

__all__ = ["BasicVSR", "Trunk", "options_of"]


class Trunk(nn.Module):
    """What a frame and the features carried to it become: a convolution and residual blocks.

    Args:
        channels: of the features.
        blocks: residual blocks.
    """

    def __init__(self, channels: int, blocks: int) -> None:
        super().__init__()
        self.first = conv3x3(3 + channels, channels)
        self.blocks = residual_blocks(blocks, channels)

    def forward(self, frame: Tensor, carried: Tensor) -> Tensor:
        """Return features ``(B, channels, H, W)``."""
        features: Tensor = self.blocks(leaky(self.first(torch.cat((frame, carried), dim=1))))
        return features


class BasicVSR(nn.Module):
    """BasicVSR at a scale of 4, for clips of any length and frames of any size.

    Args:
        options: fields of :class:`BasicVSROptions`.

    Raises:
        RecipeError: an option is unknown or not accepted.
    """

    window: int | None = None
    """Frames that it takes: any number."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        o: BasicVSROptions = BasicVSROptions.of("BasicVSR", options)
        self.channels = o.channels
        self.checkpointing = o.checkpointing
        self.flow = SpyNet() if o.flow == "spynet" else None
        self.backward_trunk = Trunk(o.channels, o.blocks)
        self.forward_trunk = Trunk(o.channels, o.blocks)
        self.fusion = nn.Conv2d(2 * o.channels, o.channels, 1)
        self.head = Upsampler(o.channels, o.head_channels, zero_last=o.zero_last)
        if o.zero_last:
            for conv in (self.backward_trunk.first, self.forward_trunk.first):
                start_leaky(conv)
                start_on_structure(conv)
            start_leaky(self.fusion)

    def outputs(self, frames: int) -> range:
        """Return which frames of a clip :meth:`forward` gives: all."""
        return range(frames)

    def forward(self, video: Tensor, *, mirrored: bool = False) -> Tensor:
        """Return ``(B, T, 3, 4H, 4W)`` in fp32.

        Args:
            video: ``(B, T, 3, H, W)`` in 0..1, RGB.
            mirrored: the second half of each clip is its first half in reverse. Its flows forwards are then those
                backwards in reverse, and are not computed twice.

        Raises:
            PlanError: it is no video, or a mirrored one has an odd number of frames.
        """
        check_video(video)
        count = video.shape[1]
        if mirrored and count % 2:
            raise PlanError(f"a mirrored clip has {count} frames; accepted: an even number")
        frames = list(video.unbind(1))
        ahead, behind = self._grids(video, mirrored)
        # From the last frame to the first, then back in order.
        backward = list(self._carry(self.backward_trunk, frames[::-1], ahead[::-1]))[::-1]
        details = self._details(backward, self._carry(self.forward_trunk, frames, behind))
        enlarged = F.interpolate(video.flatten(0, 1).float(), scale_factor=SCALE, mode="bilinear", align_corners=False)
        if count == 1 and self.flow is not None:
            # There is nothing to align. Every parameter still takes part, as DistributedDataParallel asks.
            details = details + self.flow(video[0, :0], video[0, :0]).sum()
        return grouped(enlarged, count) + details

    @property
    def _at_once(self) -> bool:
        """Whether frames go through a layer together where they can: faster, and activations are kept anyway."""
        return torch.is_grad_enabled() and not self.checkpointing

    def _grids(self, video: Tensor, mirrored: bool) -> tuple[Sequence[Tensor | None], Sequence[Tensor | None]]:
        """Where each frame but the last finds the next, and each but the first the one before: ``(B, H, W, 2)``."""
        count = video.shape[1]
        if self.flow is None or count == 1:
            return (nothing := [None] * (count - 1)), nothing
        earlier, later = video[:, :-1], video[:, 1:]
        ahead = self._grids_between(self.flow, earlier, later)
        return ahead, ahead[::-1] if mirrored else self._grids_between(self.flow, later, earlier)

    def _grids_between(self, flow: SpyNet, frames: Tensor, others: Tensor) -> Sequence[Tensor]:
        """Where each of the frames finds the other, from ``(B, N, 3, H, W)`` each."""
        if self._at_once:
            return grouped(grid_of(flow(frames.flatten(0, 1), others.flatten(0, 1))), frames.shape[1]).unbind(1)
        pairs = zip(frames.unbind(1), others.unbind(1), strict=True)
        return [grid_of(recomputed(flow, *pair, on=self.checkpointing)) for pair in pairs]

    def _carry(self, trunk: Trunk, frames: Sequence[Tensor], grids: Sequence[Tensor | None]) -> Iterator[Tensor]:
        """Features of each frame, made of it and of those before it."""
        first = frames[0]
        carried = first.new_zeros((first.shape[0], self.channels, *first.shape[-2:]))
        for frame, grid in zip(frames, (None, *grids), strict=True):
            if grid is not None:
                carried = sample(carried, grid)
            carried = recomputed(trunk, frame, carried, on=self.checkpointing)
            yield carried

    def _details(self, backward: Sequence[Tensor], forward: Iterator[Tensor]) -> Tensor:
        """Residual to add to the enlarged frames, ``(B, T, 3, 4H, 4W)`` in fp32."""
        if self._at_once:
            details = self._restore(torch.cat(list(backward)), torch.cat(list(forward)))
            return grouped(details, len(backward[0])).transpose(0, 1)
        pairs = zip(backward, forward, strict=True)
        return torch.stack([recomputed(self._restore, *pair, on=self.checkpointing) for pair in pairs], dim=1)

    def _restore(self, backward: Tensor, forward: Tensor) -> Tensor:
        details: Tensor = self.head(leaky(self.fusion(torch.cat((backward, forward), dim=1))))
        return details.float()


def options_of(state: Mapping[str, Tensor]) -> tuple[dict[str, Any], str] | None:
    """Return the options of the BasicVSR whose tensors these are, by our names, and a description in a line.

    None where they are of something else; where some are missing, the network built so will miss them.
    """
    first = state.get("backward_trunk.first.weight")
    if first is None:
        return None
    options = {
        "channels": len(first),
        "blocks": count_layers(state, r"backward_trunk\.blocks\.(\d+)\."),
        "head_channels": head_channels(state),
        "flow": "spynet" if any(key.startswith("flow.") for key in state) else "none",
    }
    aligned = "" if options["flow"] == "spynet" else ", without optical flow"
    return options, f"BasicVSR of {options['blocks']} blocks and {options['channels']} channels{aligned}"
