"""Configurations in Python are evaluated without being executed."""

import pytest

from vcycle.utils.python_config import read_python_config


@pytest.fixture
def read(tmp_path):
    def read(text, **others):
        for name, content in others.items():
            (tmp_path / f"{name}.py").write_text(content)
        (tmp_path / "main.py").write_text(text)
        return read_python_config(tmp_path / "main.py").values

    return read


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("dict(a=1, b=[2, (3, 4)])", {"a": 1, "b": [2, (3, 4)]}),
        ("dict(dict(a=1), **dict(b=2))", {"a": 1, "b": 2}),
        ("{'a': 1, **known}", {"a": 1, "k": [1, 2, 3]}),
        ("known['k'][1:] + [7]", [2, 3, 7]),
        ("[*known['k'], 0] * 2", [1, 2, 3, 0, 1, 2, 3, 0]),
        ("known.k[0] * -2 ** 2 / 4", -1.0),
        ("8 // 3 + 7 % 4", 5),
        ("f'{name}/x' + name", "top/xtop"),
        ("list(range(3))", [0, 1, 2]),
        ("1 if name else 2", 1),
        ("copy.deepcopy(known)", {"k": [1, 2, 3]}),
        ("None", None),
    ],
)
def test_expressions_have_the_value_that_python_gives_them(read, expression, value):
    prelude = "import copy\nknown = dict(k=[1, 2, 3])\nname = 'top'\n"
    assert read(f"{prelude}x = {expression}\n")["x"] == value


def test_values_change_as_python_changes_them(read):
    found = read("a = dict(b=dict(c=1))\na['b']['c'] = 2\na.update(d=3)\nx, y = 1, 2\nx += 4\nz = y\ndel y\n")
    assert found == {"a": {"b": {"c": 2}, "d": 3}, "x": 5, "z": 2}


def test_bases_are_merged_key_by_key_and_replaced_on_request(read):
    base = "model = dict(type='A', head=dict(n=1, m=2), neck=dict(k=1))\nsteps = [1, 2]\nkept = 0\n"
    own = (
        "_base_ = ['base.py']\nmodel = dict(head=dict(n=5), neck=dict(_delete_=True, j=2))\nsteps = [3]\n"
        "copied = _base_.steps + [4]\nquoted = {{_base_.kept}}\n"
    )
    assert read(own, base=base) == {
        "model": {"type": "A", "head": {"n": 5, "m": 2}, "neck": {"j": 2}},
        "steps": [3],
        "kept": 0,
        "copied": [1, 2, 4],
        "quoted": 0,
    }


def test_bases_of_the_new_style_are_imports_and_classes_are_their_names(read):
    base = "from torch.optim import SGD\noptimizer = dict(type=SGD, lr=0.1)\n"
    own = "with read_base():\n    from .base import *\noptimizer.update(lr=0.2)\nother = dict(type=SGD)\n"
    assert read(own, base=base) == {"optimizer": {"type": "SGD", "lr": 0.2}, "other": {"type": "SGD"}}


def test_names_that_other_values_use_are_known(tmp_path):
    (tmp_path / "main.py").write_text("a = 1\nb = [a]\nc = 2\n")
    assert read_python_config(tmp_path / "main.py").read == {"a"}


@pytest.mark.parametrize(
    "statement",
    [
        "x = open('f')",
        "x = [i for i in range(3)]",
        "x = (lambda: 1)()",
        "x = ().__class__",
        "x = unknown",
        "x = 'a' * 10 ** 9",
        "x = 9 ** 9 ** 9",
        "x = [0] * 10 ** 7",
        "x = 'a' % 3",
        "import os\nx = os.system('true')",
        "x = '%s' % dict()",
        "x = f'{1:>1000000000}'",
        "for i in [1]:\n    x = i",
        "def f(): pass",
        "exec('x = 1')",
        "x = [1, 2]['a']",
        "x = int('a')",
        "x = 1 / 0",
        "x = {[]: 1}",
        "x = dict(1)",
    ],
)
def test_anything_else_is_refused_with_its_line(read, statement):
    with pytest.raises(ValueError, match=r"main\.py:\d+: `") as caught:
        read(f"y = 0\n{statement}\n")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["x = (", "x = \0", "_base_ = 'main.py'", "a = [0] * 1000\n" + "a = [a, a]\n" * 40, "x = " + "-" * 100_000 + "1"],
)
def test_a_file_that_is_not_python_circular_or_enormous_is_refused(read, text):
    with pytest.raises(ValueError, match=r"main\.py"):
        read(text)


def test_a_missing_base_is_an_error_of_the_system(read):
    with pytest.raises(OSError, match="nowhere"):
        read("_base_ = 'nowhere.py'")
