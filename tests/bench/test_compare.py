import json

import pytest

from vcycle.bench.compare import Arm, ArmRun, compare
from vcycle.errors import RecipeError, VcycleError
from vcycle.plan import Baseline, cascade, constant, control, multigrid

BASELINE = Baseline(batch=4, frames=8, size=64, clips=37, epochs=12, lr=0.1)
PLANS = {
    "constant": constant(BASELINE),
    "long+short": multigrid(BASELINE),
    "cascade": cascade(BASELINE),
    "control:cascade": control(cascade(BASELINE)),
    "control:long+short": control(multigrid(BASELINE)),
}
SECONDS = {"constant": 100.0, "long+short": 50.0, "cascade": 25.0, "control:cascade": 80.0, "control:long+short": 90.0}


def arms_of(*names, key="k"):
    return [Arm(name=name, plan=PLANS[name.partition("@")[0]], key=key) for name in names]


def run_of(arm, seed, *, val=0.8, test=0.7, seconds=None, correct=None):
    return ArmRun(
        arm=arm.name,
        seed=seed,
        key=arm.key,
        steps=len(arm.plan),
        samples=arm.plan.samples,
        work=arm.plan.work(),
        seconds=(seconds or SECONDS[arm.name.partition("@")[0]]) + seed,
        cpu_seconds=20.0,
        data_seconds=2.0,
        replaced=0,
        val=val,
        test=test,
        curve=[(1.0, 10, 0.1), (2.0, 20, val)],
        correct=correct,
    )


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results.jsonl"


def test_arms_take_turns_seed_by_seed(results):
    order = []

    def train(arm, seed):
        order.append((arm.name, seed))
        return run_of(arm, seed)

    told = []
    found = compare(arms_of("constant", "cascade"), seeds=(3, 5), results=results, train=train, on_run=told.append)
    assert order == [("constant", 3), ("cascade", 3), ("constant", 5), ("cascade", 5)]
    assert [run.seed for run in found.of("cascade")] == [3, 5]
    assert told == list(found.runs)


def test_a_finished_run_is_not_trained_again_and_one_of_another_recipe_is(results):
    trained = []

    def train(arm, seed):
        trained.append((arm.name, seed, arm.key))
        return run_of(arm, seed)

    first = compare(arms_of("constant", "cascade"), seeds=(0,), results=results, train=train)
    again = compare(arms_of("constant", "cascade"), seeds=(0,), results=results, train=train)
    assert again == first
    assert len(trained) == 2
    compare(arms_of("constant", "cascade"), seeds=(0, 1), results=results, train=train)
    assert trained[2:] == [("constant", 1, "k"), ("cascade", 1, "k")]
    compare(arms_of("constant", key="other"), seeds=(0, 1), results=results, train=train)
    assert trained[4:] == [("constant", 0, "other"), ("constant", 1, "other")]


def test_a_study_that_was_cut_short_goes_on_where_it_stopped(results):
    def cut(arm, seed):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append((arm.name, seed))
        return run_of(arm, seed)

    done = []
    arms = arms_of("constant", "cascade")
    with pytest.raises(KeyboardInterrupt):
        compare(arms, seeds=range(3), results=results, train=cut)
    # The last line was being written.
    results.write_bytes(results.read_bytes()[:-20])
    rest = []
    found = compare(
        arms,
        seeds=range(3),
        results=results,
        train=lambda arm, seed: rest.append((arm.name, seed)) or run_of(arm, seed),
    )
    assert rest == [("constant", 1), ("cascade", 1), ("constant", 2), ("cascade", 2)]
    assert found == compare(arms, seeds=range(3), results=results, train=None)


@pytest.mark.parametrize("line", ['{"arm": "x"}', "[1]", '{"curve": [[1]]}'])
def test_a_results_file_of_something_else_is_refused(results, line):
    results.write_text(line + "\n")
    with pytest.raises(
        VcycleError, match=r"results.jsonl holds something else than finished runs .*give another --out"
    ):
        compare(arms_of("constant"), seeds=(0,), results=results, train=run_of)


def test_arms_must_be_there_and_differ(results):
    for names in ([], ["cascade", "cascade"]):
        with pytest.raises(RecipeError, match="at least one is needed, each once"):
            compare(arms_of(*names), seeds=(0,), results=results, train=run_of)


def comparison(results, accuracy, *, seeds=2, test=True, seconds=None):
    """A comparison whose arms end at the validation and test accuracies that are given."""

    def train(arm, seed):
        val, shown = accuracy[arm.name]
        shift = 0.01 * seed
        return run_of(
            arm, seed, val=val + shift, test=shown + shift if test else None, seconds=(seconds or {}).get(arm.name)
        )

    return compare(arms_of(*accuracy), seeds=range(seeds), results=results, train=train)


def test_the_best_plan_is_the_fastest_within_a_point_of_the_best_on_validation(results):
    # The test split would choose long+short.
    found = comparison(results, {"constant": (0.9, 0.9), "long+short": (0.81, 0.95), "cascade": (0.805, 0.6)})
    assert found.best == "cascade"


def test_a_faster_plan_that_is_worse_on_validation_is_not_the_best(results):
    found = comparison(results, {"constant": (0.9, 0.9), "long+short": (0.82, 0.6), "cascade": (0.80, 0.95)})
    assert found.best == "long+short"


def test_plans_whose_control_was_trained_come_first(results):
    accuracy = {"long+short": (0.9, 0.9), "cascade": (0.5, 0.5), "control:cascade": (0.6, 0.6)}
    found = comparison(results, accuracy)
    assert (found.best, found.control_of("cascade"), found.control_of("long+short")) == (
        "cascade",
        "control:cascade",
        None,
    )
    assert found.constant is None


def test_a_plan_of_another_length_has_the_same_control(results):
    found = comparison(results, {"cascade@0.5": (0.5, 0.5), "control:cascade@2": (0.6, 0.6), "constant@2": (0.6, 0.6)})
    assert found.best == "cascade@0.5"
    assert found.control_of("cascade@0.5") == "control:cascade@2"
    assert found.constant == "constant@2"


def test_constant_and_controls_alone_have_no_best_plan(results):
    found = comparison(results, {"constant": (0.9, 0.9), "control:cascade": (0.9, 0.9)})
    assert found.best is None
    assert found.as_data()["plan"] is None
    assert found.as_data()["control"] is None


def test_gains_are_of_time_and_of_accuracy_on_the_split_that_is_shown(results):
    found = comparison(results, {"constant": (0.9, 0.8), "cascade": (0.8, 0.75), "control:cascade": (0.85, 0.7)})
    data = json.loads(json.dumps(found.as_data()))
    assert (data["plan"], data["control"], data["split"]) == ("cascade", "control:cascade", "test")
    arm = data["arms"]["cascade"]
    assert arm["train_seconds"] == 25.5
    assert (arm["accuracy"], arm["val_accuracy"]) == (pytest.approx(0.755), pytest.approx(0.805))
    assert arm["accuracy_std"] == pytest.approx(0.01 / 2**0.5)
    assert (arm["seeds"], arm["steps"], arm["samples"]) == (2, len(PLANS["cascade"]), PLANS["cascade"].samples)
    assert arm["fingerprint"] == PLANS["cascade"].fingerprint
    assert arm["over_constant"]["speedup"] == pytest.approx(100.5 / 25.5)
    assert arm["over_constant"]["accuracy_difference"]["difference"] == pytest.approx(-0.05)
    assert arm["over_control"]["speedup"] == pytest.approx(80.5 / 25.5)
    assert arm["over_control"]["accuracy_difference"]["low"] < 0.05 < arm["over_control"]["accuracy_difference"]["high"]
    assert "over_constant" not in data["arms"]["constant"]
    assert "over_control" not in data["arms"]["control:cascade"]
    assert data["arms"]["control:cascade"]["over_constant"]["speedup"] == pytest.approx(100.5 / 80.5)
    assert [run["curve"] for run in data["runs"]] == [[[1.0, 10, 0.1], [2.0, 20, run["val"]]] for run in data["runs"]]


def test_without_a_test_split_validation_is_shown(results):
    found = comparison(results, {"constant": (0.9, 0.1), "cascade": (0.8, 0.1)}, test=False)
    assert found.split == "val"
    assert found.accuracies("constant") == [0.9, pytest.approx(0.91)]


def test_one_seed_has_no_interval(results):
    data = comparison(results, {"constant": (0.9, 0.9), "cascade": (0.8, 0.8)}, seeds=1).as_data()
    assert data["arms"]["cascade"]["over_constant"]["accuracy_difference"] is None
    assert data["arms"]["cascade"]["accuracy_std"] == 0.0


def test_of_several_lengths_the_fastest_within_a_point_of_the_best_on_validation_is_compared_with(results):
    lengths = {"constant@0.25": (0.5, 0.9), "constant@0.5": (0.895, 0.5), "constant": (0.9, 0.6)}
    controls = {"control:cascade@0.5": (0.6, 0.9), "control:cascade": (0.9, 0.5)}
    seconds = {"constant@0.25": 25.0, "constant@0.5": 50.0, "control:cascade@0.5": 40.0}
    found = comparison(results, {**lengths, "cascade": (0.9, 0.6), **controls}, seconds=seconds)
    data = found.as_data()
    assert (found.constant, data["constant"]) == ("constant@0.5", "constant@0.5")
    assert (found.control_of("cascade"), data["control"]) == ("control:cascade", "control:cascade")
    assert data["arms"]["cascade"]["over_constant"]["speedup"] == pytest.approx(50.5 / 25.5)
    assert data["arms"]["cascade"]["over_constant"]["cpu_speedup"] == 1.0


def paired(results, correct):
    def train(arm, seed):
        return run_of(arm, seed, correct=correct[arm.name][seed])

    arms = arms_of("constant", "cascade")
    return compare(arms, seeds=(0, 1), results=results, train=train).gain("cascade", "constant").paired


def test_videos_are_paired_where_every_run_could_read_them(results):
    found = paired(
        results,
        {"constant": [[1, 0, 0, None, 1], [1, 0, 0, 1, 1]], "cascade": [[1, 1, 0, 1, 1], [1, 1, 1, 0, 1]]},
    )
    assert found.difference == pytest.approx(3 / 8)
    assert found.low <= found.difference <= found.high
    # Read back from the file, it is the same.
    assert paired(results, {}) == found


@pytest.mark.parametrize("other", [[None, None], [[1, 0], None], [[1, 0], [1, 1, 1]]])
def test_without_the_same_videos_in_every_run_nothing_is_paired(results, other):
    assert paired(results, {"constant": other, "cascade": [[1, 0], [0, 1]]}) is None
