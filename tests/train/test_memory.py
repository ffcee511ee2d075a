"""What a training asks of the C library's memory."""

import os
import platform
import resource
import subprocess
import sys

import pytest

from vcycle.train import memory

_SCRIPT = """
import resource, torch
from vcycle.train.memory import keep_freed
keep_freed()
def step():
    held = [torch.ones(4 << 20) for _ in range(4)]  # 16 MB each
for _ in range(5):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
_TOUCHED = 10 * 4 * (16 << 20) // os.sysconf("SC_PAGE_SIZE")


def _page_faults(**environment: str) -> int:
    own = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
    command = [sys.executable, "-c", _SCRIPT]
    found = subprocess.run(command, env=own | environment, capture_output=True, text=True, check=True, timeout=120)
    return int(found.stdout)


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
