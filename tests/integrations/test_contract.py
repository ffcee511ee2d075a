"""Every framework trains as the plain loop does: same shapes, clips, LRs and weights, whole and resumed at any step.

What is measured is in docs/integrations.json, of which docs/integrations.md shows a table. To write it anew:
`VCYCLE_WRITE_RECORDS=1 python -m pytest tests/integrations/test_contract.py`, then `python docs/integrations_table.py`.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from setups import SETUPS, missing
from yardstick import PLAN, RESUMED_AT, Trace, difference

from vcycle.utils.versions import older

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "docs" / "integrations.json"

TWO = 2e-6
"""How far the weights of two processes may be from those of one: they sum in another order."""


def recorded(name, **measured):
    """Compare what a test measured with the record, or write it there."""
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    if os.environ.get("VCYCLE_WRITE_RECORDS"):
        record.setdefault(name, {}).update(measured)
        RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    assert record[name].items() >= measured.items()


@pytest.fixture(params=[name for name, row in SETUPS.items() if row.alone])
def name(request):
    if (reason := missing(request.param)) is not None:
        pytest.skip(reason)
    return request.param


def assert_follows(trace, reference, start=0):
    assert trace.shapes == reference.shapes[start:]
    assert trace.clips == reference.clips[start:]
    assert trace.lrs == reference.lrs[start:]


def test_the_plain_loop_follows_the_plan(reference):
    assert len(PLAN) == 19
    assert reference.shapes == [(step.batch, 2, *step.shape) for step in PLAN]
    assert {shape[0] for shape in reference.shapes} == {32, 16, 8, 4}
    assert reference.lrs == [step.lr for step in PLAN]
    assert len(set(reference.lrs)) > 6  # warmup, four stages, decay


def test_one_process_equals_the_plain_loop_whole_and_resumed_at_every_step(name, reference, tmp_path):
    train = SETUPS[name].train
    whole = train(tmp_path)
    assert_follows(whole, reference)
    furthest = 0.0
    for start in range(1, len(PLAN)):
        resumed = train(tmp_path, start)
        assert_follows(resumed, reference, start)
        furthest = max(furthest, difference(resumed, reference))
    measured = {"one_process": difference(whole, reference), "resumed": furthest}
    recorded(name, **measured, resumed_at=len(PLAN) - 1)
    assert difference(whole, reference) == furthest == 0


def joined(traces):
    """The trace of all ranks: each step's slices, put together in their order."""
    one, *_ = traces
    assert all(trace.lrs == one.lrs for trace in traces)
    assert all(difference(trace, one) == 0 for trace in traces)
    slices = list(zip(*(trace.shapes for trace in traces), strict=True))
    assert all(len({shape[1:] for shape in step}) == 1 for step in slices)
    return Trace(
        shapes=[(sum(shape[0] for shape in step), *step[0][1:]) for step in slices],
        clips=[[clip for part in step for clip in part] for step in zip(*(t.clips for t in traces), strict=True)],
        lrs=one.lrs,
        weights=one.weights,
    )


@pytest.mark.slow
def test_two_processes_equal_one_whole_and_resumed(reference, tmp_path):
    """One launch for all: most of its time is the imports."""
    names = [name for name in SETUPS if missing(name) is None]
    if older("torch", "2.10") and "transformers" in names:  # its resume loads to `cpu:0`, which torch 2.6 cannot
        names.remove("transformers")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = Path(__file__).with_name("two_processes.py")
    ended = subprocess.run(
        [*torchrun, str(script), str(tmp_path), *names],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    ranks = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1)]
    for name in names:
        for start, part in ((0, "whole"), (RESUMED_AT, "resumed")):
            trace = joined([Trace(**rank[name][part]) for rank in ranks])
            assert_follows(trace, reference, start)
            assert difference(trace, reference) <= TWO, (name, part)
        recorded(name, two_processes=TWO)
    if "accelerate" in names:
        (said,) = {said for rank in ranks for said in rank["refusals"]["accelerate"]}
        assert said.startswith("PlanBatchSampler already gives each of the 2 ranks its slice of every batch")


@pytest.mark.parametrize("name", SETUPS)
def test_the_lines_that_a_plan_adds_are_counted_in_the_example(name):
    text = (ROOT / "examples" / SETUPS[name].example).read_text()
    lines = [len(re.findall(rf"  # {mark}$", text, re.MULTILINE)) for mark in (r"\+", r"\+\+")]
    shown = {"title": SETUPS[name].title, "example": SETUPS[name].example, "order": list(SETUPS).index(name)}
    recorded(name, lines=lines[0], lines_for_several=lines[1], **shown)


def test_the_table_of_the_guide_shows_the_record():
    spec = importlib.util.spec_from_file_location("integrations_table", ROOT / "docs" / "integrations_table.py")
    table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    page = table.PAGE.read_text()
    assert list(json.loads(RECORD.read_text())) == sorted(SETUPS)
    assert table.filled(page) == page, "write the table anew: python docs/integrations_table.py"
