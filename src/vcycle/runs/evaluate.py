"""Evaluates models of any task on any number of ranks, and writes the results."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcycle.data import Replacement
from vcycle.errors import DataError, VcycleError, user_code
from vcycle.tasks.base import Evaluator, Progress
from vcycle.train.calling import is_handled_elsewhere
from vcycle.utils.atomic import atomic_write

if TYPE_CHECKING:
    import torch
    from torch import nn

    from vcycle.plan import Shape
    from vcycle.train.outcome import EvalResult
    from vcycle.train.ranks import Ranks
    from vcycle.train.validation import Evaluator as Validate

__all__ = ["check_classes", "evaluate_all", "validator", "write_result"]


def validator(
    evaluator: Evaluator,
    on_message: Callable[[str], None] = lambda _: None,
    *,
    ranks: "Ranks",
    on_progress: Progress = lambda *_: None,
) -> "Validate":
    """Build a function that evaluates a model during training, at full resolution or at a stage's shape.

    All ranks call the function, and each gets the result.

    Args:
        evaluator: The evaluator.
        on_message: Called once for each item that is damaged or cannot be read.
        ranks: The ranks that evaluate together; each takes a share of the items.
        on_progress: Called with the progress of each evaluation.
    """
    named: set[int] = set()
    faults: set[str] = set()

    def on_fault(fault: str) -> None:
        if fault not in faults:
            faults.add(fault)
            on_message(fault)

    def validate(model: "nn.Module", device: "torch.device", /, shape: "Shape | None" = None) -> "EvalResult":
        own = evaluator if shape is None else evaluator.at(shape)
        own.on_fault = on_fault
        report = partial(on_progress, own.doing)
        with _evaluating(own):
            found = list(own.each(model, device, rank=ranks.rank, world=ranks.world, progress=report))
        return ranks.reduce_on_first(found, partial(judge, own))

    def judge(own: Evaluator, everything: Sequence[Any]) -> "EvalResult":
        for bad in unreadable(everything):
            if bad.video not in named:
                named.add(bad.video)
                on_message(_left_out(evaluator, bad))
        with _evaluating(own):
            return own.result(everything)

    return validate


def _evaluating(evaluator: Evaluator) -> AbstractContextManager[None]:
    """Report an exception of an evaluator that a user brought as one error."""
    kind = type(evaluator)
    return user_code(f"evaluator {kind.__module__}:{kind.__qualname__} failed", evaluator, passing=is_handled_elsewhere)


def evaluate_all(
    evaluator: Evaluator,
    model: "nn.Module",
    device: "torch.device",
    *,
    ranks: "Ranks",
    on_message: Callable[[str], None] = lambda _: None,
    on_progress: Progress = lambda *_: None,
) -> list[Any] | None:
    """Evaluate on all ranks. Returns all results on the first rank, None on the others; reports unreadable items."""
    report = partial(on_progress, evaluator.doing)
    with _evaluating(evaluator):
        own = list(evaluator.each(model, device, rank=ranks.rank, world=ranks.world, progress=report))
    shares = ranks.gather(own)
    if shares is None:
        return None
    everything = [found for share in shares for found in share]
    for bad in unreadable(everything):
        on_message(_left_out(evaluator, bad))
    return everything


def unreadable(found: Sequence[Any]) -> list[Replacement]:
    """The items that cannot be read, without duplicates, in the dataset's order."""
    bad = {item.video: item for item in found if isinstance(item, Replacement)}
    return [bad[video] for video in sorted(bad)]


def _left_out(evaluator: Evaluator, bad: Replacement) -> str:
    return f"bad {evaluator.item} {bad.path}: {bad.cause}; left out of the evaluation"


def check_classes(own: Sequence[str], classes: Sequence[str], source: object, origin: str) -> None:
    """Check that the data has the classes of the model, in the same order.

    Args:
        own: The classes of the data.
        classes: The classes of the model.
        source: Source of the data, for messages.
        origin: Source of the model, for messages.

    Raises:
        DataError: if they differ.
    """
    if tuple(own) == tuple(classes):
        return
    differ = next(
        (f"{a!r} where it knows {b!r}" for a, b in zip(own, classes, strict=False) if a != b), "more or fewer"
    )
    raise DataError(
        f"{source} has {len(own)} classes, and the model in {origin} was trained for {len(classes)}: {differ}"
    )


def write_result(file: Path, data: Mapping[str, Any]) -> None:
    """Write one JSON object atomically, with one line per value and per list item.

    Raises:
        VcycleError: if it cannot be written.
    """
    lines = []
    for key, value in data.items():
        text = json.dumps(value)
        if isinstance(value, list) and value:
            rows = ",\n".join(f"  {json.dumps(row)}" for row in value)
            text = f"[\n{rows}\n ]"
        lines.append(f" {json.dumps(key)}: {text}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as handle:
            handle.write(("{\n" + ",\n".join(lines) + "\n}\n").encode())
    except OSError as error:
        raise VcycleError(f"{file} cannot be written: {error.strerror or error}") from error
