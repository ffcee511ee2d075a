"""Measures the wait for data per batch shape; reports a data-bound stage once, with cause and remedy."""

from collections.abc import Callable

from vcycle.data.pool.work import Spent
from vcycle.plan import Plan, Step
from vcycle.train.outcome import Totals
from vcycle.utils.cores import cores, idle_cores

__all__ = ["Waiting", "cause_and_remedy"]

_SHARE = 0.1
"""Share of a stage's time above which waiting is reported."""
_STEPS, _SECONDS = 8, 1.0
"""Steps of a stage, and seconds of waiting in it, before the share is meaningful."""
_LESS_TO_DECODE = "`vcycle prepare` makes videos that decode faster, and data.cache=SIDE decodes them only once"


class Waiting:
    """Counts the time spent waiting for data, and reports it if it is long."""

    def __init__(
        self,
        totals: Totals,
        plan: Plan,
        *,
        workers: int,
        local_ranks: int = 1,
        on_slow: Callable[[Step, str, str], None],
    ) -> None:
        """Start counting.

        Args:
            totals: Totals of the run; holds the counts by batch shape.
            plan: The plan of the run.
            workers: Number of data workers.
            local_ranks: Ranks on this machine, each with as many workers.
            on_slow: Called once for each stage that waits too long, with the step at which that became clear, how long
                it waits, and the cause with its remedy.
        """
        self._shapes = totals.waiting
        self._plan = plan
        self._workers = workers
        self._local_ranks = local_ranks
        self._tell = on_slow
        self._stage = -1

    def count(self, step: Step, spent: Spent, *, data_seconds: float, seconds: float) -> None:
        """Count a step: the cost of loading its batch, the wait for it, and the time of the whole step."""
        shape = str(step.cell)
        row = self._shapes.setdefault(shape, {"steps": 0, "seconds": 0.0, "data_seconds": 0.0})
        row["steps"] += 1
        row["seconds"] += seconds
        row["data_seconds"] += data_seconds
        if step.stage != self._stage:
            # Skip the first step of a stage: workers may only be starting, or adapting to the new shape.
            self._stage, self._told = step.stage, False
            self._steps, self._seconds, self._waited, self._spent = 0, 0.0, 0.0, Spent()
            return
        self._steps += 1
        self._seconds += seconds
        self._waited += data_seconds
        self._spent += spent
        if not self._told and self._steps >= _STEPS and self._waited > max(_SHARE * self._seconds, _SECONDS):
            self._told = True
            stage = self._plan.stages[step.stage]
            cause, remedy = cause_and_remedy(
                self._spent,
                seconds=self._seconds,
                waited=self._waited,
                workers=self._workers,
                cores=max(1, cores() // self._local_ranks),
                idle=None if (idle := idle_cores()) is None else idle / self._local_ranks,
            )
            self._tell(
                step,
                f"stage {stage.name!r} ({stage.base}) waits for data {self._waited / self._seconds:.0%} of the time",
                f"{cause}; {remedy}",
            )


def cause_and_remedy(
    spent: Spent, *, seconds: float, waited: float, workers: int, cores: int, idle: float | None = None
) -> tuple[str, str]:
    """Why training waited for data, and what helps.

    Args:
        spent: The cost of loading.
        seconds: Wall-clock time in all.
        waited: The part of it spent waiting for data.
        workers: Number of data workers.
        cores: Cores that this process may use: its share of them, where several ranks share a machine.
        idle: How many of them are idle while this process waits; None if unknown.
    """
    most = cores if idle is None else min(cores, workers + round(idle))
    if workers == 0:
        cause = "the training process loads the data itself (data.workers is 0)"
        if idle is None:
            return cause, f"data.workers={most} loads in parallel"
        if most <= 1:  # the training itself takes one
            return f"{cause}, and there is no idle core to load in parallel", _LESS_TO_DECODE
        return cause, f"data.workers={most} loads in parallel on idle cores"
    if spent.main_seconds > waited / 2:
        return "clips are loaded, but the training process is slow to collate them", (
            "return vcycle.data.Sample from the dataset: its clips need no copy"
        )
    busy = spent.seconds / (seconds * workers)
    if busy < 0.5:
        return f"slow clips hold up their batch while the workers are idle {1 - busy:.0%} of the time", (
            "data.prefetch=N loads further ahead"
        )
    computing = spent.cpu_seconds / spent.seconds
    queued = spent.queued_seconds / spent.seconds
    if computing >= max(queued, 1 - computing - queued):
        if workers < most:
            free = f"there are {cores} cores" if idle is None else f"{_cores(most - workers)} idle"
            return f"decoding keeps {_processes(workers)} busy, and {free}", f"data.workers={most}"
        none = ", and no other core is idle" if workers < cores else ""
        return f"decoding keeps all of {_processes(workers)} busy{none}", _LESS_TO_DECODE
    if queued >= 1 - computing - queued:
        shared = "one core" if cores == 1 else f"{cores} cores"
        return f"{_processes(workers)} and the training share {shared}", _LESS_TO_DECODE
    return f"reading from the disk keeps {_processes(workers)} waiting", (
        f"data.workers={2 * workers} reads more at once, `vcycle prepare` makes smaller files, "
        "and a local disk may be faster"
    )


def _cores(count: int) -> str:
    return "1 core is" if count == 1 else f"{count} cores are"


def _processes(workers: int) -> str:
    return "the one worker" if workers == 1 else f"{workers} workers"
