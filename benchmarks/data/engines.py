"""What an engine costs: files prepared per processor second through each engine, against plain loops over the files.

Every way prepares the same files by the same function. They take turns, so other load affects all alike. Time is
processor time of this process and all that it has started, from after the first file of each worker: the start is not
counted. With Ray, that is also its scheduler, its store and its agents. Also measures what the main process pays per
job, and per record of the journal and the index, which bounds how many cores one main process can serve. Prints one
JSON line per run.

    python engines.py [--files 4] [--repeats 3] [--short-side 258] [--ray] >> engines.jsonl
"""

import argparse
import json
import multiprocessing
import os
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from vcycle.bench.data.clips import generated_videos
from vcycle.bench.timing import Spread, ratios
from vcycle.data.engines import make_engine
from vcycle.data.engines.jobs import PATIENCE, Engine, Job
from vcycle.data.layouts import VideoList
from vcycle.data.prepare.encode import EncodeTask, encode_file
from vcycle.data.prepare.extents import compare_extents
from vcycle.data.prepare.index import write_index
from vcycle.data.prepare.journal import Journal
from vcycle.data.prepare.records import Record
from vcycle.data.prepare.settings import PrepareSettings
from vcycle.data.prepare.sources import find_sources
from vcycle.train.environment import machine, versions

_TICKS = os.sysconf("SC_CLK_TCK")
_NOTHING = 300
"""Jobs without work, for what a job costs by itself."""
_RECORDS = 20_000


def processor_seconds() -> float:
    """Processor time so far of this process and all its descendants, dead ones too if their parent lives."""
    spent: dict[int, tuple[int, float]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        spent[int(stat.parent.name)] = int(fields[1]), sum(map(int, fields[11:15])) / _TICKS
    ours, found = {os.getpid()}, 0
    while len(ours) > found:
        found = len(ours)
        ours |= {pid for pid, (parent, _) in spent.items() if parent in ours}
    return sum(spent[pid][1] for pid in ours if pid in spent)


class Direct:
    """Plain loops side by side: a forked process per worker, which takes every so many-th file."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def run(self, function: Any, jobs: Sequence[Job]) -> Iterator[None]:
        """Run jobs; see ``Engine.run``."""
        fork = multiprocessing.get_context("fork")
        loops = [fork.Process(target=self._loop, args=(function, jobs[n :: self.workers])) for n in range(self.workers)]
        for loop in loops:
            loop.start()
        for loop in loops:
            loop.join()
            assert loop.exitcode == 0
        yield from (None for _ in jobs)

    @staticmethod
    def _loop(function: Any, jobs: Sequence[Job]) -> None:
        for job in jobs:
            function(job.payload, lambda _: None)


@contextmanager
def opened(name: str, workers: int) -> Iterator[Engine | Direct]:
    """A way to run jobs."""
    if name == "direct":
        yield Direct(workers)
        return
    with make_engine(name, workers=workers, patience=PATIENCE) as engine:
        yield engine


def main() -> None:
    """Measure, and print the line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--short-side", type=int, default=258)
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--ray", action="store_true", help="also Ray, on a cluster of this machine")
    given = parser.parse_args()
    settings = PrepareSettings(levels=(given.short_side,))
    ways = [("direct", 1), ("local", 1), ("direct", 2), ("local", 2), *([("ray", 1), ("ray", 2)] if given.ray else [])]
    load = os.getloadavg()
    with TemporaryDirectory() as folder:
        videos = generated_videos(Path(folder) / "videos", given.files, frames=given.frames)
        sizes = [Path(str(videos.path(item))).stat().st_size for item in range(given.files)]
        made: list[Record] = []

        def jobs(way: str) -> list[Job]:
            return [
                Job(
                    payload=EncodeTask(
                        source=str(videos.path(item)),
                        frame_rate=None,
                        targets=(f"{folder}/{way}/{item}.mp4",),
                        settings=settings,
                    ),
                    size=sizes[item],
                )
                for item in range(given.files)
            ]

        cpu: dict[str, list[float]] = {}
        per_job: dict[str, float] = {}
        for _ in range(given.repeats):
            for name, workers in ways:
                way = f"{name}, {workers}"
                with opened(name, workers) as engine:
                    # One job per worker, so that each has started.
                    list(engine.run(encode_file, (jobs(way) * workers)[:workers]))
                    start = processor_seconds()
                    outcomes = list(engine.run(encode_file, jobs(way)))
                    cpu.setdefault(way, []).append((processor_seconds() - start) / given.files)
                    made = [outcome.result for outcome in outcomes if outcome is not None] or made
                    if name != "direct" and way not in per_job:
                        before = time.process_time()
                        list(engine.run(compare_extents, [Job(payload=(), size=1) for _ in range(_NOTHING)]))
                        per_job[way] = (time.process_time() - before) / _NOTHING
        record = made[0]
        book = bookkeeping(Path(folder), record, settings)
    print(
        json.dumps(
            {
                "machine": machine(),
                "versions": versions(),
                "load": {"start": load, "end": os.getloadavg()},
                "files": given.files,
                "frames": given.frames,
                "source_bytes": sum(sizes) / given.files,
                "output_bytes": sum(r.levels[0].bytes for r in made if r.levels[0]) / given.files,
                "short_side": given.short_side,
                "cpu_seconds_per_file": {way: Spread.of(values)._asdict() for way, values in cpu.items()},
                "throughput_per_core_over_direct": {
                    f"{name}, {workers}": ratios(cpu[f"direct, {workers}"], cpu[f"{name}, {workers}"])._asdict()
                    for name, workers in ways
                    if name != "direct"
                },
                "main_process_cpu_seconds_per_job": per_job,
                "bookkeeping": book,
            }
        )
    )


def bookkeeping(folder: Path, record: Record, settings: PrepareSettings) -> dict[str, float]:
    """What a record costs the process that keeps the journal and writes the index."""
    names = [f"class/{number:08}.mp4" for number in range(_RECORDS)]
    videos = VideoList(root=folder, paths=names, labels=[0] * _RECORDS, classes=("any",), source=folder)
    sources = find_sources({"train": videos})
    with Journal(folder / "journal.jsonl", {"written": Record.from_json}) as journal:
        start = time.process_time()
        for file in sources.files:
            journal.note("written", file.name, record.to_json(), [file.stamp])
        writing = time.process_time() - start
    del journal
    tracemalloc.start()
    journal = Journal(folder / "journal.jsonl", {"written": Record.from_json})
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del journal
    start = time.process_time()
    journal = Journal(folder / "journal.jsonl", {"written": Record.from_json})
    records = {file.name: journal.get("written", file.name, [file.stamp]) for file in sources.files}
    write_index(folder, settings, sources, records, {})
    return {
        "records": _RECORDS,
        "note_seconds": writing / _RECORDS,
        "merge_seconds": (time.process_time() - start) / _RECORDS,
        "merge_bytes": held / _RECORDS,
        "journal_bytes": (folder / "journal.jsonl").stat().st_size / _RECORDS,
        "index_bytes": (folder / "index.npz").stat().st_size / _RECORDS,
    }


if __name__ == "__main__":
    main()
