"""Measures loader throughput relative to a bare loop over the same dataset."""

import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from vcycle.bench.timing import Spread, ratios
from vcycle.data import FrameSource, GridSampler, PlanBatchSampler, VideoDataset, VideoList, loader
from vcycle.data.forking import signals_wait
from vcycle.errors import DataError
from vcycle.plan import Baseline, Plan, Shape, constant
from vcycle.utils.cores import cores

__all__ = ["loader_share"]

_STEPS = 8  # the least, the first of which is not timed


def loader_share(
    videos: VideoList,
    sources: Mapping[str, FrameSource],
    grids: GridSampler,
    shape: Shape,
    *,
    repeats: int,
    seconds: float,
    batch: int,
    progress: Callable[[int, int], None],
) -> list[dict[str, Any]]:
    """Compare the throughput of one and two loader workers with one bare loop, source by source.

    Returns:
        A row for each source and number of workers: wall milliseconds per clip in the bare loop, in one that keeps
        its clips in batches as training needs them, in as many bare loops side by side, and through the loader; and
        what share of workers x bare loop, of workers x bare loop with batches, and of bare loops side by side, the
        loader delivers. Where cores are not free, only the last can be large.
    """
    rows = []
    counts = [workers for workers in (1, 2) if workers <= cores()]
    done, total = 0, len(sources) * repeats * (2 + len(counts))
    for name, source in sources.items():
        dataset = VideoDataset(videos, grids, source=source)
        few = _plan(shape, 1, steps=4)
        _bare(dataset, few)
        clips = seconds / _bare(dataset, few)
        size = int(min(max(clips / _STEPS, 2), batch))
        plan = _plan(shape, size, steps=max(round(clips / size), _STEPS))
        bare: list[float] = []
        batches: list[float] = []
        beside: dict[int, list[float]] = {workers: [] for workers in counts}
        delivered: dict[int, list[float]] = {workers: [] for workers in counts}
        for _ in range(repeats):
            bare.append(_bare(dataset, plan))
            batches.append(_delivered(dataset, plan, 0))
            done += 2
            progress(done, total)
            for workers in counts:
                beside[workers].append(_bare_processes(dataset, plan, workers))
                delivered[workers].append(_delivered(dataset, plan, workers))
                done += 1
                progress(done, total)
        rows += [
            {
                "source": name,
                "frames": shape.frames,
                "size": shape.height,
                "clips": plan.samples,
                "workers": workers,
                "bare_ms": Spread.of([1e3 * each for each in bare])._asdict(),
                "loader_ms": Spread.of([1e3 * each for each in taken])._asdict(),
                "batches_ms": Spread.of([1e3 * each for each in batches])._asdict(),
                "beside_ms": Spread.of([1e3 * each for each in beside[workers]])._asdict(),
                "share_of_beside": ratios(beside[workers], taken)._asdict(),
                "share": ratios(bare, [workers * each for each in taken])._asdict(),
                "share_of_batches": ratios(batches, [workers * each for each in taken])._asdict(),
            }
            for workers, taken in delivered.items()
        ]
    return rows


def _plan(shape: Shape, batch: int, *, steps: int) -> Plan:
    return constant(Baseline(batch=batch, frames=shape.frames, size=shape.height, clips=batch, lr=0.1, steps=steps))


def _bare(dataset: VideoDataset, plan: Plan) -> float:
    """Seconds per clip in one process, without a loader."""
    requests = [request for batch in PlanBatchSampler(plan, len(dataset)) for request in batch]
    start = time.perf_counter()
    for request in requests:
        dataset[request]
    return (time.perf_counter() - start) / len(requests)


def _bare_processes(dataset: VideoDataset, plan: Plan, count: int) -> float:
    """Seconds per clip of several processes in parallel, each with a bare loop."""
    start = time.perf_counter()
    children = []
    for _ in range(count):
        with signals_wait([signal.SIGINT]):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    signal.signal(signal.SIGINT, signal.SIG_DFL)
                    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
                    _bare(dataset, plan)
                    status = 0
                finally:
                    os._exit(status)
        children.append(child)
    for child in children:
        if os.waitpid(child, 0)[1]:
            raise DataError("a process that read clips in a bare loop failed")
    return (time.perf_counter() - start) / (plan.samples * count)


def _delivered(dataset: VideoDataset, plan: Plan, workers: int) -> float:
    """Seconds per clip after the first batch, excluding worker start-up."""
    batches = iter(loader(dataset, plan, workers=workers))
    next(batches)
    start = time.perf_counter()
    clips = sum(len(batch.clips) for batch in batches)
    return (time.perf_counter() - start) / clips
