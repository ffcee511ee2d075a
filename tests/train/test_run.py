import pytest

from vcycle.errors import VcycleError
from vcycle.plan import Baseline, Plan, constant, multigrid
from vcycle.train.run import RunFolder

BASELINE = Baseline(batch=4, frames=8, size=64, clips=37, epochs=12, lr=0.1)
PLAN = multigrid(BASELINE)


def test_a_run_folder_holds_the_recipe_and_the_plan(tmp_path):
    run = RunFolder(tmp_path / "runs" / "first")
    run.prepare(PLAN, "a: 1\n", resume=False)
    assert run.recipe.read_text() == "a: 1\n"
    assert Plan.from_json(run.plan.read_text()) == PLAN
    assert sorted(file.name for file in run.path.iterdir()) == ["plan.json", "recipe.yaml"]
    assert not run.started


@pytest.mark.parametrize("sign", ["log.jsonl", "bad_samples.jsonl", "checkpoints/step-000000001.pt"])
def test_a_folder_that_holds_a_run_is_not_used_for_another(tmp_path, sign):
    run = RunFolder(tmp_path)
    run.prepare(PLAN, "a: 1\n", resume=False)
    run.checkpoints.mkdir()
    (tmp_path / sign).write_text("")
    with pytest.raises(VcycleError, match=r"already holds a run: `vcycle train .* --resume` resumes it"):
        run.prepare(constant(BASELINE), "a: 2\n", resume=False)
    assert run.prepare(constant(BASELINE), "a: 2\n", resume=True)
    assert run.recipe.read_text() == "a: 1\n"
    assert Plan.from_json(run.plan.read_text()) == PLAN


@pytest.mark.parametrize("resume", [False, True])
def test_a_run_that_ended_before_its_first_line_may_be_begun_otherwise(tmp_path, resume):
    run = RunFolder(tmp_path)
    run.prepare(PLAN, "a: 1\n", resume=False)
    run.checkpoints.mkdir()
    (run.checkpoints / "step-000000000.pt").write_text("")
    assert not run.prepare(constant(BASELINE), "a: 2\n", resume=resume)
    assert run.recipe.read_text() == "a: 2\n"
    assert Plan.from_json(run.plan.read_text()) == constant(BASELINE)


def test_a_recipe_that_a_user_keeps_in_the_folder_is_not_replaced(tmp_path):
    run = RunFolder(tmp_path)
    run.recipe.write_text("mine: 1\n")
    with pytest.raises(VcycleError, match=r"recipe\.yaml exists but was not written by a run: choose another --out"):
        run.prepare(PLAN, "a: 1\n", resume=False)
    assert [file.name for file in tmp_path.iterdir()] == ["recipe.yaml"]
    assert run.recipe.read_text() == "mine: 1\n"


def test_a_folder_that_cannot_be_made_is_an_error_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(VcycleError, match=r"run folder .*file/run cannot be created: Not a directory"):
        RunFolder(tmp_path / "file" / "run").prepare(PLAN, None, resume=False)
