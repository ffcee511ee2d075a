"""Plans as plain data: dataclasses to JSON objects tagged with their kind, and back."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

from vcycle.errors import PlanError

__all__ = ["decode", "encode"]


def encode(value: object) -> Any:
    """A dataclass as an object with its class name under `kind`; tuples as lists.

    Equal values give the same data: 239 epochs are 239.0 epochs.
    """
    if is_dataclass(value) and not isinstance(value, type):
        named = {f.name: encode(getattr(value, f.name)) for f in fields(value)}
        return {"kind": type(value).__name__} | named
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, tuple | list):
        return [encode(v) for v in value]
    if isinstance(value, dict):
        return {k: encode(v) for k, v in value.items()}
    return value


def decode(data: Any) -> Any:
    """The value that `encode` made `data` from.

    Raises:
        PlanError: for an unknown kind, or fields that do not fit it.
    """
    if isinstance(data, list):
        return tuple(decode(v) for v in data)
    if not isinstance(data, dict):
        return data
    kind = data.get("kind")
    if not isinstance(kind, str):
        return {k: decode(v) for k, v in data.items()}
    kinds = _kinds()
    if kind not in kinds:
        raise PlanError(f"unknown kind {kind!r} in a plan: {', '.join(sorted(kinds))}")
    try:
        return kinds[kind](**{k: decode(v) for k, v in data.items() if k != "kind"})
    except (TypeError, AttributeError) as error:
        raise PlanError(f"{kind} in a plan does not fit: {error}") from None


def _kinds() -> dict[str, Callable[..., Any]]:
    from vcycle.plan import baseline, rates, schedule, shape

    classes: tuple[Callable[..., Any], ...] = (
        baseline.Baseline,
        rates.ConstantRate,
        rates.CosineDecay,
        rates.CosineRate,
        rates.CurveDecay,
        rates.CurveRate,
        rates.FactorWarmup,
        rates.NoDecay,
        rates.RampWarmup,
        rates.Role,
        rates.StepDecay,
        schedule.Plan,
        schedule.Stage,
        shape.BatchShape,
    )
    return {c.__name__: c for c in classes}
