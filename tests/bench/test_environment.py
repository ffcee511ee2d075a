import pytest
import torch

from vcycle.bench.environment import note_environment, read_environments
from vcycle.errors import VcycleError
from vcycle.train.environment import environment


@pytest.fixture
def file(tmp_path):
    return tmp_path / "environments.json"


def test_what_a_study_ran_on_is_written_down_once(file):
    here, said = environment(torch.device("cpu")), []
    assert read_environments(file) == []
    for _ in range(2):
        note_environment(file, here, said.append)
    assert read_environments(file) == [here]
    assert said == []


def test_a_study_that_goes_on_elsewhere_says_what_differs(file):
    said = []
    note_environment(file, {"cores": 2, "torch": "2.11.0", "device": "CPU"}, said.append)
    note_environment(file, {"cores": 2, "torch": "2.12.0", "device": "H200"}, said.append)
    assert said == [
        "this study's earlier runs used another environment: torch 2.11.0 → 2.12.0, device CPU → H200; times may not "
        "compare"
    ]
    assert len(read_environments(file)) == 2


@pytest.mark.parametrize("text", ["{", "{}", "[1]"])
def test_a_file_of_something_else_is_refused(file, text):
    file.write_text(text)
    with pytest.raises(VcycleError, match=r"environments\.json (cannot be read|is not a list of environments)"):
        read_environments(file)
