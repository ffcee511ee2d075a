"""What a training asks of the C library's memory."""

import ctypes
import multiprocessing
import os
import platform
import resource
from typing import Any

import pytest
import torch

from vcycle.train import memory

_TOUCHED = 10 * 4 * (16 << 20) // os.sysconf("SC_PAGE_SIZE")


def _step() -> None:
    _held = [torch.ones(4 << 20) for _ in range(4)]  # 16 MB each


def _count_page_faults(results: Any, environment: dict[str, str]) -> None:
    for name in [name for name in os.environ if name.startswith("MALLOC_")]:
        del os.environ[name]
    os.environ.update(environment)
    # As the library begins: it reads its variables once, when a program starts.
    ctypes.CDLL(None).mallopt(-3, int(environment.get("MALLOC_MMAP_THRESHOLD_", 1 << 17)))
    memory.keep_freed()
    for _ in range(5):
        _step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        _step()
    results.put(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)


def _page_faults(**environment: str) -> int:
    spawn = multiprocessing.get_context("spawn")  # a fork has what earlier tests have left free in this process
    results = spawn.SimpleQueue()
    process = spawn.Process(target=_count_page_faults, args=(results, environment))
    process.start()
    process.join()
    assert process.exitcode == 0
    return int(results.get())


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of GNU's C library alone")
@pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY, reason="memory is limited")
def test_what_a_step_frees_is_kept_for_the_next_unless_the_user_has_said_otherwise():
    assert _page_faults() < _TOUCHED / 100
    assert _page_faults(MALLOC_MMAP_THRESHOLD_="131072") > _TOUCHED / 100


@pytest.mark.parametrize(("limit", "asked"), [(resource.RLIM_INFINITY, 2), (1 << 40, 0)])
def test_nothing_is_kept_where_the_address_space_is_limited(monkeypatch, limit, asked):
    class Library:
        calls = 0

        def mallopt(self, *_):
            Library.calls += 1

    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda _: Library())
    monkeypatch.setattr(memory.resource, "getrlimit", lambda _: (limit, limit))
    memory.keep_freed()
    assert Library.calls == asked
