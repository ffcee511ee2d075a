import hashlib
import pickle
import subprocess
import sys
from array import array
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcycle.data.layouts import Strings, VideoList
from vcycle.data.layouts.files import cut_groups
from vcycle.errors import DataError


def videos(paths=("a.mp4", "b.mp4", "c.mp4"), labels=(0, 1, 0), **more):
    return VideoList(root="/set", paths=paths, labels=labels, classes=("run", "jump"), source="/set/list", **more)


def test_strings_read_like_a_tuple_of_them():
    words = ("", "a b", "été.mp4", "映像", "x\udcff", "a b")
    strings = Strings(words)
    assert (len(strings), tuple(strings), tuple(reversed(strings))) == (6, words, words[::-1])
    for many in (words * 1500, (*words, "\0", "a\0b") * 1500, ("a",) * 9000):
        assert tuple(Strings(many)) == many
        assert bytes(Strings(many).encoded) == b"".join(word.encode(errors="surrogateescape") + b"\0" for word in many)
    assert (strings[2], strings[-1], strings[1:4], strings[::-2]) == (words[2], words[-1], words[1:4], words[::-2])
    assert (strings.index("a b"), strings.count("a b"), "映像" in strings, "nothing" in strings) == (1, 2, True, False)
    for number in (6, -7):
        with pytest.raises(IndexError):
            strings[number]


def test_strings_are_equal_where_they_hold_the_same_in_the_same_pieces():
    assert Strings(["ab", "c"]) == Strings(iter(["ab", "c"]))
    assert Strings(["ab", "c"]) != Strings(["a", "bc"])
    assert Strings(["ab"]) != ("ab",)


def test_a_list_keeps_what_it_is_given_in_arrays():
    found = videos(lines=[3, 4, 6])
    assert (found.labels, found.lines) == (array("i", [0, 1, 0]), array("i", [3, 4, 6]))
    assert [found.labels_of(item) for item in range(3)] == [(0,), (1,), (0,)]
    assert found.origin(2) == "/set/list, line 6"
    assert found == videos(lines=(3, 4, 6)) != videos(lines=(3, 4, 5))
    assert pickle.loads(pickle.dumps(found)) == found
    assert len(repr(videos([f"{i}.mp4" for i in range(5000)], [0, 1] * 2500))) < 300


def test_a_whole_video_has_no_span():
    assert videos().span(1) == (0, inf)
    limited = videos(spans=(0, inf, 1.5, 3, 0, inf))
    assert [limited.span(item) for item in range(3)] == [(0, inf), (1.5, 3), (0, inf)]


def test_a_multi_label_list_has_any_number_of_labels_for_each_video_and_their_times():
    found = videos(labels=(1, 0, 1), label_starts=(0, 2, 2, 3), label_spans=(0, 1, 2, 3, 4, 5))
    assert found.multi_label
    assert [found.labels_of(item) for item in range(3)] == [(1, 0), (), (1,)]
    assert [found.label_spans_of(item) for item in range(3)] == [((0, 1), (2, 3)), (), ((4, 5),)]
    assert not videos().multi_label
    assert videos().label_spans_of(1) == ((0, inf),)


def test_a_digest_is_of_all_names_and_of_all_labels_as_numbers():
    names, labels = [f"{number}é.mp4" for number in range(10_000)], [number % 2 for number in range(10_000)]
    by_name = hashlib.sha256("".join(f"{name}\0" for name in names).encode())
    by_label = hashlib.sha256(b'["run", "jump"]10000:' + array("d", labels).tobytes() + b"0:0:0:")
    expected = {"videos": 10_000, "names": by_name.hexdigest()[:16], "labels": by_label.hexdigest()[:16]}
    assert videos(names, labels).digest() == expected


@pytest.mark.parametrize(
    "wrong",
    [
        {"labels": (0, 1)},
        {"lines": (1, 2)},
        {"spans": (0, 1)},
        {"label_spans": (0, 1, 2)},
        {"label_starts": (0, 3)},
        {"label_starts": (0, 1, 2, 4)},
    ],
)
def test_lengths_that_do_not_agree_are_refused(wrong):
    with pytest.raises(DataError, match=r"/set/list: \d+ \w+ for 3 videos"):
        videos(**wrong)


@given(st.dictionaries(st.text(), st.integers(1, 40), min_size=2), st.floats(0.01, 0.99))
def test_groups_are_cut_near_the_fraction_asked_for_whatever_their_order(groups, fraction):
    kept = cut_groups(groups, fraction)
    assert set() < kept < set(groups)
    assert kept == cut_groups(dict(reversed(groups.items())), fraction)
    total, wanted = sum(groups[name] for name in kept), fraction * sum(groups.values())
    if 1 < len(kept) < len(groups) - 1:
        assert abs(total - wanted) <= max(groups.values()) / 2


def test_a_single_group_is_not_cut():
    assert cut_groups({"one": 5}, 0.5) == set()
    assert cut_groups({"one": 5, "two": 5}, 0) == set()


MANY = """
import gc, os, sys
from vcycle.data.layouts import VideoList

count = 200_000
videos = VideoList(
    root="/a/dataset", classes=tuple(map(str, range(400))), source="/a/dataset/train.csv",
    paths=(f"a class of some name/{i:011}_000010_000020.mp4" for i in range(count)),
    labels=(i % 400 for i in range(count)), lines=range(count), spans=[0.0, 1.0] * count,
)
plain = [f"a class of some name/{i:011}_000010_000020.mp4" for i in range(count)]

def private():
    with open("/proc/self/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Private_Dirty"))

def read_all(what):
    if what == "videos":
        for item in range(count):
            videos.paths[item], videos.labels[item], videos.lines[item], videos.span(item)
    else:
        for path in plain:
            path

def growth(what):
    reader, writer = os.pipe()
    if not os.fork():
        gc.disable()
        before = private()
        read_all(what)
        os.write(writer, str(private() - before).encode())
        os._exit(0)
    os.wait()
    return int(os.read(reader, 100))

print(*[growth("videos") for _ in range(3)], growth("plain"))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_forked_workers_that_read_every_entry_copy_almost_nothing():
    ended = subprocess.run([sys.executable, "-c", MANY], capture_output=True, text=True, check=True)
    *packed, plain = map(int, ended.stdout.split())
    assert max(packed) < 1024, "kB that a worker copied of a list of 200,000 videos"
    assert plain > 4096, "what a worker copies of plain strings: this test could not tell the difference"
