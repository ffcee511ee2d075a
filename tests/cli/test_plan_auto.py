"""`vcycle plan auto`: a plan proposed from measured steps and a pilot, and never applied."""

import contextlib
import io
import json
import math
import shutil

import pytest

from vcycle.bench.auto import propose
from vcycle.bench.auto.choose import Reached
from vcycle.bench.steps.stepper import Run, Stepper
from vcycle.cli.app import app
from vcycle.console import process
from vcycle.errors import VcycleError

QUICK = ("training.steps=192", "--repeats", "1", "--seconds", "0")


@pytest.fixture(scope="module", autouse=True)
def steady():
    """Steps that take a millisecond and a tenth for each clip, so that the plans of a search are always the same."""

    def run(self, shape, steps, batches=None):
        del self, steps, batches
        seconds = 1e-3 * (1 + shape.batch / 10)
        return Run(seconds, seconds, seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stepper, "run", run)
        yield


@pytest.fixture(scope="module")
def train_only(videos, tmp_path_factory):
    """The videos, of which only those to train on can be read."""
    root = shutil.copytree(videos, tmp_path_factory.mktemp("auto") / "videos")
    for split in ("val", "test"):
        for file in (root / split).rglob("*.mp4"):
            file.write_bytes(b"")
    return root


@pytest.fixture(scope="module")
def searched(steady, train_only, recipe, tmp_path_factory):
    """A search for the recipe: its folder, with what was printed as JSON beside."""
    folder = tmp_path_factory.mktemp("search")
    (folder / "tiny.yaml").write_text(recipe)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        arguments = [str(folder / "tiny.yaml"), f"data={train_only}", "--work", str(folder / "work"), *QUICK]
        code = process.run(
            app,
            ["plan", "auto", *arguments, "--pilot", "0.5", "--plans", "3", "-o", str(folder / "mine.yaml"), "--json"],
        )
    assert code == 0
    return folder, json.loads(printed.getvalue())


def preferred_of(found):
    """The plan that the printed values of the pilot speak for: the best, if it beats the own by two standard errors."""
    last = [row for row in found["candidates"] if len(row["pilot"]) == 2]
    best = max(last, key=lambda row: (row["pilot"][-1]["value"], row["score"]))
    (own,) = [row for row in last if row["own"]]
    theirs, ours = best["pilot"][-1]["value"], own["pilot"][-1]["value"]
    error = math.sqrt((theirs * (1 - theirs) + ours * (1 - ours)) / found["held_out"])
    return best if theirs - ours > 2 * error else own


def test_a_plan_is_proposed_within_the_time_of_the_recipes_own_with_its_reasons(searched):
    _, found = searched
    assert found["seconds"] <= found["budget_seconds"] == found["own_seconds"]
    chosen = [row for row in found["candidates"] if row["chosen"]]
    assert [row["plan"] for row in chosen] == [found["plan"]]
    assert (chosen[0]["steps"], chosen[0]["out_of_bounds"]) == (found["steps"], None)
    starts = [reason.partition(":")[0] for reason in found["reasons"]]
    assert starts[:3] == ["Time", "Pilot", "Steps"]
    assert all(any(character.isdigit() for character in reason) for reason in found["reasons"])


def test_the_pilot_halves_the_plans_and_judges_them_on_held_out_training_data_alone(searched):
    folder, found = searched
    assert found["held_out"] == 3  # a fifth of 16
    piloted = [row for row in found["candidates"] if row["pilot"]]
    piloted.sort(
        key=lambda row: (-row["pilot"][0]["value"], -row["score"])
    )  # three items often give two plans one value
    assert [len(row["pilot"]) for row in piloted] == [2, 2, 2 if piloted[2]["own"] else 1]
    runs = [json.loads(line) for line in (folder / "work" / "pilot.jsonl").read_text().splitlines()]
    assert len(runs) == sum(len(row["pilot"]) for row in piloted)
    assert all(run["test"] is None and 3 * run["val"] == pytest.approx(round(3 * run["val"])) for run in runs)
    assert next(row for row in piloted if row["chosen"]) == preferred_of(found)


@pytest.mark.parametrize(("value", "switches"), [(0.9, False), (1.0, True)])
def test_another_plan_is_proposed_if_it_beats_the_recipes_own_by_two_standard_errors(
    searched, train_only, vcycle, monkeypatch, value, switches
):
    folder, _ = searched

    def known(held, plans, seconds, budgets, out, **_):
        del held, seconds, out
        return {
            each.candidate.label: [
                Reached(seconds=budget, value=0.4 if each.candidate.own else value, steps=9, cpu_seconds=1.0)
                for budget in budgets
            ]
            for each in plans
        }

    monkeypatch.setattr(propose, "pilot", known)
    found = json.loads(
        vcycle(
            "plan", "auto", folder / "tiny.yaml", f"data={train_only}", "--work", folder / "work", *QUICK, "--json"
        ).out
    )
    chosen = next(row for row in found["candidates"] if row["chosen"])
    assert chosen == preferred_of(found)
    # Of three items the standard error is 0.33 for 0.4 against 0.9, and 0.28 against 1.
    assert chosen["own"] is not switches
    assert any("so the recipe's own plan stays" in reason for reason in found["reasons"]) is not switches


def test_the_recipe_written_has_the_plan_and_is_otherwise_the_users(searched, vcycle):
    folder, found = searched
    text = (folder / "mine.yaml").read_text()
    assert [line[2:] for line in text.splitlines() if line.startswith("# ")] == found["reasons"]
    printed = json.loads(vcycle("plan", folder / "mine.yaml", "--json").out)
    by_overrides = vcycle("plan", folder / "tiny.yaml", QUICK[0], *found["overrides"], "data.clips=16", "--json")
    assert printed["fingerprint"] == json.loads(by_overrides.out)["fingerprint"]
    assert printed["steps"] == found["steps"]


def test_the_same_search_is_not_measured_or_trained_again(searched, train_only, vcycle):
    folder, found = searched
    arguments = (folder / "tiny.yaml", f"data={train_only}", "--work", folder / "work", *QUICK)
    ran = vcycle("plan", "auto", *arguments, "--pilot", "0.5", "--plans", "3", "--json")
    assert "reusing the times of steps" in ran.err
    again = json.loads(ran.out)
    assert again["search"].pop("pilot_seconds") < found["search"]["pilot_seconds"]
    assert again == {**found, "search": {k: v for k, v in found["search"].items() if k != "pilot_seconds"}}
    shown = vcycle("plan", "auto", *arguments, "--pilot", "0")
    assert "proposed, not applied: plan=" in shown.out
    assert "Pilot: none." in shown.out


def test_times_measured_on_another_machine_are_measured_again(searched, train_only, vcycle, monkeypatch, tmp_path):
    folder, _ = searched
    timed = json.loads((folder / "work" / "steps.json").read_text())
    (tmp_path / "steps.json").write_text(json.dumps(timed | {"machine": {"processor": "another"}}))

    def measured(*_, **__):
        raise VcycleError("measured again")

    monkeypatch.setattr(propose, "time_steps", measured)
    arguments = (folder / "tiny.yaml", f"data={train_only}", *QUICK, "--pilot", "0", "--work")
    assert vcycle("plan", "auto", *arguments, folder / "work").code == 0
    assert "measured again" in vcycle("plan", "auto", *arguments, tmp_path).err


@pytest.fixture
def aiming(searched, train_only, vcycle, monkeypatch):
    """A search for a target, by a pilot whose trainings all had these values."""
    folder, _ = searched

    def run(values, target):
        def known(held, plans, seconds, budgets, out, **_):
            del held, seconds, out
            points = [
                Reached(seconds=budget, value=value, steps=9, cpu_seconds=1.0)
                for budget, value in zip(budgets, values, strict=True)
            ]
            return {each.candidate.label: points for each in plans}

        monkeypatch.setattr(propose, "pilot", known)
        arguments = (folder / "tiny.yaml", f"data={train_only}", "--work", folder / "work", *QUICK)
        return vcycle("plan", "auto", *arguments, "--target", target, "--json")

    return run


def test_the_time_to_a_target_is_an_estimate_that_extends_the_pilot(aiming):
    found = json.loads(aiming((0.5, 0.75), "93.75").out)
    assert found["is_estimate"]
    # The error is a half after an eighth of the budget, and halves with each doubling: a sixteenth at its end.
    assert 0.9 * found["budget_seconds"] < found["seconds"] <= found["budget_seconds"]
    (said,) = [reason for reason in found["reasons"] if reason.startswith("Target: an estimate.")]
    assert all(f"{value} % after" in said for value in ("50.0", "75.0", "93.8"))


def test_a_target_that_the_pilot_does_not_lead_to_is_refused(aiming):
    ran = aiming((0.5, 0.5), "0.9")
    assert (ran.code, ran.out) == (2, "")
    assert "--target 90.0 %: by the pilot, whose best value is 50.0 %, no plan of up to 2 lengths" in ran.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--hours", "1", "--target", "90"), "--hours and --target: one of the two is accepted"),
        (("--hours", "0"), "--hours 0: a number above 0 is accepted"),
        (("--target", "90", "--pilot", "0"), "--target with --pilot 0"),
        (("--target", "900"), "--target 900: a share such as 0.95, or 95, is accepted"),
        (("-o", "mine.txt"), "--out mine.txt: a recipe's file name ends in .yaml"),
        (("-o", "tiny.yaml"), "--out tiny.yaml: the file exists and is not overwritten"),
        (("plan=cascad",), "plan 'cascad' is unknown (did you mean 'cascade'?)"),
        (("data=null",), "the recipe names no videos: give a folder or a list file with data=PATH"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_before_anything_is_measured(here, vcycle, videos, options, said):
    data = () if options == ("data=null",) else (f"data={videos}",)
    ran = vcycle("plan", "auto", "tiny.yaml", *data, *options)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert [file.name for file in here.iterdir()] == ["tiny.yaml"]


def test_a_short_recipe_whose_longest_plans_have_further_shapes_says_that_time_is_left(
    train_only, vcycle, recipe, tmp_path
):
    (tmp_path / "tiny.yaml").write_text(recipe)
    arguments = (tmp_path / "tiny.yaml", f"data={train_only}", "--work", tmp_path / "work", *QUICK[1:])
    ran = vcycle("plan", "auto", *arguments, "--hours", "0.02", "--pilot", "0")
    assert ran.code == 0, ran.err
    assert "of the 72.0 s are used, because 2 lengths are the longest that is proposed" in ran.out


def test_a_time_too_short_for_any_plan_is_refused_with_the_shortest(searched, train_only, vcycle):
    folder, _ = searched
    arguments = (folder / "tiny.yaml", f"data={train_only}", "--work", folder / "work", *QUICK)
    ran = vcycle("plan", "auto", *arguments, "--hours", "1e-9")
    assert ran.code == 2
    assert "no plan is long enough in that time; the shortest, " in ran.err
    accepted = ran.err.rsplit("--hours ", 1)[1].partition(" ")[0]
    ran = vcycle("plan", "auto", *arguments, "--hours", accepted, "--pilot", "0", "--json")
    assert json.loads(ran.out)["seconds"] <= 3600 * float(accepted)
