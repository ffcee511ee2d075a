"""Folders that are written to: made, or refused in a line."""

import pytest

from vcycle.errors import VcycleError
from vcycle.utils.folders import make_folder


def test_a_folder_is_made_with_those_that_it_lies_in_unless_it_is_there(tmp_path):
    for _ in range(2):
        make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize(("name", "why"), [("file", "File exists"), ("file/a", "Not a dir"), ("n" * 300, "too long")])
def test_one_that_cannot_be_made_says_why(tmp_path, name, why):
    (tmp_path / "file").write_text("")
    with pytest.raises(VcycleError, match=rf"^run folder {tmp_path / name} cannot be created: .*{why}"):
        make_folder(tmp_path / name, "run folder")
