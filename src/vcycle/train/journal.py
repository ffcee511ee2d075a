"""The journal of samples that could not be read: reports, counts and records them, so a resumed run repeats them."""

import math
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

from vcycle.data import Batch
from vcycle.errors import DataError
from vcycle.train.outcome import Totals
from vcycle.utils.jsonl import JsonLines

__all__ = ["Journal"]

_KEYS = {"path": str, "position": int, "replacement": int}
"""The fields of a line that are read back."""

_FEW = 200
"""The fewest samples for a meaningful share."""


class Journal:
    """The journal of replaced samples, a file of JSON lines.

    A run that resumes from a checkpoint repeats the steps after it. It replaces the same samples by the same videos,
    even if a file is readable by now.
    """

    def __init__(
        self,
        path: Path,
        totals: Totals,
        *,
        others: Iterable[Path] = (),
        first: int,
        clips: int,
        repeats: int = 1,
        max_draws_per_epoch: int = 1,
        limit: float,
        on_message: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Open a journal, and read it back from the step at which the run resumes.

        Args:
            path: The file.
            totals: The totals in which samples are counted.
            others: Files of other ranks, which are also read back: a sample may now belong to another rank.
            first: Position in the sample stream at which the run starts or resumes.
            clips: Length of the training set.
            repeats: Samples of each item in succession.
            max_draws_per_epoch: The most times that an item is drawn in an epoch, repeats in succession not counted.
            limit: The share of replaced samples above which the run stops.
            on_message: Called once for each bad video.

        Raises:
            VcycleError: if a line is damaged: without it, the run would not repeat the same samples.
        """
        self._lines = JsonLines(path)
        self._lines.keep({})
        self._totals = totals
        self._clips, self._repeats, self._max_draws = clips, repeats, max_draws_per_epoch
        self._enough = min(_FEW, clips)
        self._resume = f"vcycle train {shlex.quote(str(path.parent))} --resume"
        self._limit = limit
        self._tell = on_message
        written = [line for lines in (self._lines, *map(JsonLines, others)) for line in lines.read(_KEYS)]
        self._named = {line["path"] for line in written}
        self._bad = {line["path"] for line in written}
        self.replacements = {line["position"]: line["replacement"] for line in written if line["position"] >= first}
        """Dataset index to use instead, by position in the stream."""

    def note(self, batch: Batch) -> int:
        """Record the samples of this rank's batch that were replaced; return their number."""
        self.mention(batch)
        for fault in batch.replaced:
            self._bad.add(fault.path)
            self._lines.write(**fault._asdict())
        positions = {fault.position for fault in batch.replaced}
        if self.replacements:
            positions |= self.replacements.keys() & set(batch.positions.tolist())
        return len(positions)

    def count(self, seen: int, replaced: int) -> None:
        """Count the samples of a step, on all ranks.

        Raises:
            DataError: if too large a share of the run's samples was replaced.
        """
        self._totals.seen += seen
        self._totals.replaced += replaced
        self._refuse_too_many()

    def mention(self, batch: Batch) -> None:
        """Report the bad videos of a batch, each once; for batches outside of the sample stream."""
        for fault in batch.replaced:
            self._name(fault.path, f"bad video {fault.path}: {fault.cause}; another takes its place")
        for text in batch.faults:
            self._name(text.rpartition(": ")[0], f"damaged video {text}")

    def sync(self) -> None:
        """Flush the journal to disk, before the checkpoint of its steps is saved."""
        self._lines.sync()

    def _name(self, path: str, text: str) -> None:
        if path not in self._named:
            self._named.add(path)
            self._tell(text)

    def _refuse_too_many(self) -> None:
        """Stop a run if too many of its samples were replaced.

        A single bad file, one sample (or its repeats) per pass, does not stop it, however few files there are.
        """
        seen, replaced = self._totals.seen, self._totals.replaced
        by_one_file = (
            self._max_draws * self._repeats * math.ceil(seen / (self._repeats * self._clips)) if self._limit else 0
        )
        if seen >= self._enough and replaced > max(self._limit * seen, by_one_file):
            files = "1 bad file" if len(self._bad) == 1 else f"{len(self._bad):,} bad files"
            command = f"{self._resume} run.bad_limit={_next_limit(replaced / seen):g}"
            raise DataError(
                f"{replaced:,} of the first {seen:,} samples could not be read ({replaced / seen:.1%}, of {files}); "
                f"run.bad_limit allows {self._limit:.1%}. They are listed in {self._lines.path}, and `vcycle check` "
                f"finds every bad file. `{command}` continues without them"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()


def _next_limit(share: float) -> float:
    """A limit that is somewhat above a share, as the share varies with the samples drawn."""
    return min(1.0, math.ceil(share * 1.5 * 20) / 20)
