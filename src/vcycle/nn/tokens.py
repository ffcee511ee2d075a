"""Token dropping: in training, a transformer computes a random part of each clip's tokens.

A step that keeps a quarter of the tokens costs less than a quarter, and evaluation uses all of them (Han et al. 2022,
"Turbo Training with Token Dropout"; Liu et al. 2022, "PatchDropout"). It is possible where every token attends to every
other, so that no layer needs the grid.

Which tokens are kept is a function of the seed, the clip's position in the sample stream and the token: a hash,
computed in integers. It is the same on every device and rank, in every micro-batch and in a resumed run, and touches no
random generator.
"""

from typing import Any

import torch
from torch import Tensor, nn

from vcycle.errors import PlanError
from vcycle.plan import Plan, Step, rank_slice
from vcycle.plan.shape import TOKEN_DROPPERS
from vcycle.utils.ranks import rank_and_world

__all__ = ["TokenDropping", "drop_tokens", "drop_tokens_after", "require_token_dropping"]

_GAMMA = -0x61C8864680B583EB
"""The odd number closest to 2⁶⁴ over the golden ratio, as a signed integer (SplitMix64; Steele et al. 2014)."""
_MIX = ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15), (31, 1))
"""Shift and factor of each round of SplitMix64's mixing function."""


class TokenDropping(nn.Module):
    """Keep a random part of each clip's tokens in training; the identity in evaluation and at a share of 1.

    Call it in your own transformer after the position embedding. :func:`vcycle.any_shape` puts one into the models that
    it knows, and :func:`vcycle.apply` sets its share at every step.

    Args:
        prefix: Leading tokens that are always kept, such as a class token.

    Example:
        >>> dropping = TokenDropping(prefix=1)
        >>> drop_tokens(dropping, 0.25, first=0)
        >>> dropping(torch.zeros(2, 1 + 16, 8)).shape
        torch.Size([2, 5, 8])
        >>> dropping.eval()(torch.zeros(2, 1 + 16, 8)).shape
        torch.Size([2, 17, 8])
    """

    kept: Tensor | None
    """Indices of the tokens that the last call kept, ``(B, K)``, ascending, without the prefix; None for all."""

    def __init__(self, prefix: int = 0) -> None:
        super().__init__()
        if not isinstance(prefix, int) or prefix < 0:
            raise PlanError(f"TokenDropping: prefix is {prefix!r}; accepted: a whole number, at least 0")
        self.prefix = prefix
        self.share, self.seed, self.first = 1.0, 0, 0
        self.kept = None

    @property
    def is_active(self) -> bool:
        """Whether the next call drops tokens."""
        return self.training and self.share < 1

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the tokens that are kept, in order.

        Args:
            tokens: ``(B, prefix + N, D)``.

        Returns:
            ``(B, prefix + K, D)``, where K is the share of N, rounded to the nearest, and at least 1.

        Raises:
            PlanError: if it drops tokens in a copy that ``nn.DataParallel`` has made.
        """
        if not self.is_active:
            self.kept = None
            return tokens
        if getattr(self, "_is_replica", False):
            raise PlanError(
                "nn.DataParallel does not say which clips of the batch a GPU has, and so which tokens it keeps; "
                "accepted: DistributedDataParallel, one process per GPU (torchrun), or a plan that keeps all tokens"
            )
        some: Tensor = self._some_of(tokens)
        return some

    # Not compiled: the position of the first clip changes at every step, and each would be compiled anew.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _some_of(self, tokens: Tensor) -> Tensor:
        clips, count, width = tokens.shape
        patches = count - self.prefix
        number = max(1, int(self.share * patches + 0.5))
        scores = _scores(self.seed, self.first, clips, patches, tokens.device)
        self.kept = scores.topk(number, dim=1, largest=False).indices.sort(dim=1).values
        always = torch.arange(self.prefix, device=tokens.device).expand(clips, -1)
        places = torch.cat([always, self.kept + self.prefix], dim=1)
        return tokens.gather(1, places.unsqueeze(-1).expand(-1, -1, width))

    def extra_repr(self) -> str:
        """Describe the module."""
        return f"prefix={self.prefix}, share={self.share:g}"


def drop_tokens(
    model: nn.Module,
    step: Step | float,
    *,
    seed: int = 0,
    first: int | None = None,
    rank: int | None = None,
    world: int | None = None,
) -> None:
    """Set the share of tokens that a model's next forward passes in training keep.

    :func:`vcycle.apply` calls it. Call it yourself in a loop without a plan, and before each micro-batch (gradient
    accumulation), so that the kept tokens are those of the whole batch.

    Args:
        model: A model with :class:`TokenDropping`, such as one from :func:`vcycle.any_shape`.
        step: ``plan[index]``, or a share of the tokens in (0, 1].
        seed: Seed of the training.
        first: The number of this rank's clips of the step before those of the next forward pass: 0 by default, and
            more in later micro-batches. With a share, the number of clips that were trained on before, which has no
            default: the same number keeps the same tokens.
        rank: This rank; by default it is found, as in ``vcycle.loader``.
        world: Number of ranks, likewise.

    Raises:
        PlanError: if the share is out of range, is given without ``first``, or is below 1 and the model cannot drop
            tokens.
    """
    share = getattr(step, "tokens", step)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise PlanError(f"token dropping: the share {share!r} is out of range; accepted: a number in (0, 1] or a step")
    layers = [module for module in model.modules() if isinstance(module, TokenDropping)]
    if share == 1:
        for layer in layers:
            layer.share = 1.0
        return
    if not layers:
        raise _cannot_drop(model, share)
    if not isinstance(step, int | float):
        places = rank_slice(step.batch, step.bn_batch, *rank_and_world(rank, world))
        first = (first or 0) + step.first_sample + places.start
    elif first is None:
        raise PlanError(
            f"token dropping: the share {share} is given without first=, the number of clips that were trained on "
            "before; every step would keep the same tokens"
        )
    for layer in layers:
        layer.share, layer.seed, layer.first = float(share), seed, first


def require_token_dropping(model: nn.Module, plan: Plan) -> None:
    """Check before the first step that a model can drop tokens, if its plan does.

    Raises:
        PlanError: if it cannot.
    """
    if plan.drops_tokens and not any(isinstance(module, TokenDropping) for module in model.modules()):
        raise _cannot_drop(model, min(cell.tokens for cell in plan.shapes))


def drop_tokens_after(module: nn.Module, prefix: int = 0) -> TokenDropping:
    """Put token dropping behind a module whose output is tokens with their positions, ``(B, prefix + N, D)``.

    Args:
        module: The module, which is changed in place. Its weights and their names stay.
        prefix: Leading tokens that are always kept.
    """
    dropping = TokenDropping(prefix).train(module.training)
    module.add_module("token_dropping", dropping)
    module.register_forward_hook(_drop_from_output)
    return dropping


def _drop_from_output(module: Any, args: Any, output: Tensor) -> Tensor:
    kept: Tensor = module.token_dropping(output)
    return kept


def _cannot_drop(model: nn.Module, share: float) -> PlanError:
    name = getattr(model, "_vcycle_name", type(model).__name__)
    return PlanError(
        f"model {name!r} cannot drop tokens, and a step keeps {100 * share:.3g} % of them; accepted: {TOKEN_DROPPERS}; "
        "call vcycle.any_shape(model) first"
    )


def _scores(seed: int, first: int, clips: int, tokens: int, device: torch.device) -> Tensor:
    """A random integer for each token ``(clips, tokens)``: a hash of the seed, the clip's position and the token."""
    base = (seed * _GAMMA + first) % (1 << 64)
    position = torch.arange(clips, device=device) + (base - (1 << 64) if base >= 1 << 63 else base)
    token = torch.arange(1, tokens + 1, device=device) * _GAMMA
    return _mixed(_mixed(position).unsqueeze(1) + token)


def _mixed(bits: Tensor) -> Tensor:
    """SplitMix64's mixing function of 64-bit integers, whose products wrap around."""
    for shift, factor in _MIX:
        bits = (bits ^ ((bits >> shift) & ((1 << (64 - shift)) - 1))) * factor
    return bits
