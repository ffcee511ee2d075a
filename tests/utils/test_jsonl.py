import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from vcycle.errors import VcycleError
from vcycle.utils.jsonl import JsonLines


def test_lines_are_read_back_as_they_were_written(tmp_path):
    with JsonLines(tmp_path / "x.jsonl") as lines:
        assert list(lines.read()) == []
        lines.write(a=1, text="über\n", nothing=None)
        lines.write(a=2)
        assert list(lines.read()) == [{"a": 1, "text": "über\n", "nothing": None}, {"a": 2}]
    with JsonLines(tmp_path / "x.jsonl") as lines:
        lines.write(a=3)
    assert [line["a"] for line in lines.read()] == [1, 2, 3]
    assert len((tmp_path / "x.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_last_line_that_a_kill_cut_short_is_dropped_before_the_next_is_written(tmp_path, cut):
    path = tmp_path / "x.jsonl"
    whole = json.dumps({"a": 1}) + "\n" + json.dumps({"a": 2}) + "\n"
    path.write_text(whole[:-cut])
    with JsonLines(path) as lines:
        lines.keep({})
        lines.write(a=3)
    # Without its end of line alone, an object is whole.
    first = [1, 2] if cut == 1 else [1] if cut <= 10 else []
    assert [line["a"] for line in lines.read()] == [*first, 3]


def test_empty_lines_are_passed_over(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'\n{"a": 1}\n \r\n{"a": "x"}\n\n')
    assert [line["a"] for line in JsonLines(path).read()] == [1, "x"]
    with pytest.raises(VcycleError, match="line 4 is damaged: key 'a' is 'x', not int"):
        JsonLines(path).keep({"a": 2})


@pytest.mark.parametrize("damage", [b"x", b"[1]", b"1", b"\xff\xfe\x00", b"\0\0", b'{"a": 2', b"[" * 9999, b"9" * 9999])
def test_a_line_that_was_damaged_is_named_and_nothing_is_lost(tmp_path, damage):
    path = tmp_path / "x.jsonl"
    path.write_bytes(whole := b'{"a": 1}\n' + damage + b'\n{"a": 3}\n')
    with pytest.raises(VcycleError, match=r"x\.jsonl, line 2 is damaged: .* is not a JSON object$"):
        list(JsonLines(path).read())
    with pytest.raises(VcycleError, match=r"x\.jsonl, line 2 is damaged"):
        JsonLines(path).keep({})
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    ("end", "damaged"), [(b'{"a"', False), (b'{"a"\0\0', False), (b"\0", False), (b"PK\3\4", True)]
)
def test_a_last_line_is_cut_short_only_if_it_begins_as_one(tmp_path, end, damaged):
    (tmp_path / "x.jsonl").write_bytes(b'{"a": 1}\n' + end)
    with pytest.raises(VcycleError, match="line 2 is damaged") if damaged else nullcontext():
        assert list(JsonLines(tmp_path / "x.jsonl").read()) == [{"a": 1}]


def test_a_line_without_what_is_needed_of_it_is_named(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"path": "a", "step": 1}\n{"path": 2, "step": "x"}\n')
    assert len(list(JsonLines(path).read())) == 2
    with pytest.raises(VcycleError, match=r"x\.jsonl, line 2 is damaged: key 'path' is 2, not str$"):
        list(JsonLines(path).read({"path": str}))
    with pytest.raises(VcycleError, match=r"x\.jsonl, line 1 is damaged: key 'position' is missing$"):
        list(JsonLines(path).read({"position": int}))
    with pytest.raises(VcycleError, match=r"x\.jsonl, line 2 is damaged: key 'step' is 'x', not int$"):
        JsonLines(path).keep({"step": 9})


def test_a_lenient_reader_leaves_damaged_lines_out(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"a": 1}\nx\n{"a": "y"}\n{"a": 3}\n{"a": 4')
    lines = JsonLines(path, lenient=True)
    assert [line["a"] for line in lines.read({"a": int})] == [1, 3]
    with lines:
        lines.keep({})
        lines.write(a=5)
    assert [line["a"] for line in JsonLines(path).read()] == [1, "y", 3, 5]


def test_lines_that_cannot_be_read_are_an_error_in_one_line(tmp_path):
    (tmp_path / "x.jsonl").mkdir()
    with pytest.raises(VcycleError, match=r"x\.jsonl cannot be read: Is a directory$"):
        list(JsonLines(tmp_path / "x.jsonl").read())


def test_lines_past_a_position_are_dropped(tmp_path):
    with JsonLines(tmp_path / "x.jsonl") as lines:
        lines.keep({"step": 3})
        for step in range(6):
            lines.write(step=step)
    lines.keep({"step": 3})
    assert [line["step"] for line in lines.read()] == [0, 1, 2]


def test_a_full_disk_is_an_error_in_one_line():
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    with JsonLines(Path("/dev/full")) as lines, pytest.raises(VcycleError) as caught:
        lines.write(a=1)
    assert str(caught.value) == "/dev/full cannot be written: No space left on device"
