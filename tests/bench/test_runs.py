import json

import pytest

from vcycle.bench.runs import Failure, in_turn, train_all
from vcycle.errors import CheckpointError, DataError, RecipeError, VcycleError


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results.jsonl"


def test_arms_take_turns_seed_by_seed(results, arms_of, run_of):
    order = []

    def train(arm, seed):
        order.append((arm.name, seed))
        return run_of(arm, seed)

    told = []
    arms = arms_of("constant", "cascade")
    runs, failures = train_all(arms, seeds=(3, 5), results=results, train=in_turn(train), on_run=told.append)
    assert order == [("constant", 3), ("cascade", 3), ("constant", 5), ("cascade", 5)]
    assert [(run.arm, run.seed) for run in runs] == order
    assert told == runs
    assert failures == []


def test_a_finished_run_is_not_trained_again_and_one_of_another_recipe_is(results, arms_of, run_of):
    trained = []

    def train(arm, seed):
        trained.append((arm.name, seed, arm.key))
        return run_of(arm, seed)

    first = train_all(arms_of("constant", "cascade"), seeds=(0,), results=results, train=in_turn(train))
    again = train_all(arms_of("constant", "cascade"), seeds=(0,), results=results, train=in_turn(train))
    assert again == first
    assert len(trained) == 2
    train_all(arms_of("constant", "cascade"), seeds=(0, 1), results=results, train=in_turn(train))
    assert trained[2:] == [("constant", 1, "k"), ("cascade", 1, "k")]
    train_all(arms_of("constant", key="other"), seeds=(0, 1), results=results, train=in_turn(train))
    assert trained[4:] == [("constant", 0, "other"), ("constant", 1, "other")]


def test_a_run_that_was_measured_otherwise_is_measured_again_and_its_new_line_counts(results, arms_of, run_of):
    arms = arms_of("constant", "cascade")
    train_all(arms, seeds=(0,), results=results, train=in_turn(lambda *run: run_of(*run, each=[0.5] * 4)))
    again = []

    def train(arm, seed):
        again.append(arm.name)
        return run_of(arm, seed, each=[0.5] * 30)

    def of_few(run):
        return len(run.each) != 30

    runs, _ = train_all(arms, seeds=(0,), results=results, train=in_turn(train), outdated=of_few)
    assert again == ["constant", "cascade"]
    assert [len(run.each) for run in runs] == [30, 30]
    assert train_all(arms, seeds=(0,), results=results, train=in_turn(train), outdated=of_few)[0] == runs
    assert again == ["constant", "cascade"]


def test_a_study_that_was_cut_short_goes_on_where_it_stopped(results, arms_of, run_of):
    def cut(arm, seed):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append((arm.name, seed))
        return run_of(arm, seed)

    done = []
    arms = arms_of("constant", "cascade")
    with pytest.raises(KeyboardInterrupt):
        train_all(arms, seeds=range(3), results=results, train=in_turn(cut))
    # The last line was being written.
    results.write_bytes(results.read_bytes()[:-20])
    rest = []
    found = train_all(
        arms,
        seeds=range(3),
        results=results,
        train=in_turn(lambda arm, seed: rest.append((arm.name, seed)) or run_of(arm, seed)),
    )
    assert rest == [("constant", 1), ("cascade", 1), ("constant", 2), ("cascade", 2)]
    assert found == train_all(arms, seeds=range(3), results=results, train=None)


@pytest.mark.parametrize("error", [VcycleError("the loss is not finite"), DataError("10 % cannot be read")])
def test_a_run_that_fails_is_kept_as_such_does_not_end_the_others_and_is_tried_again(results, arms_of, run_of, error):
    def train(arm, seed):
        trained.append((arm.name, seed))
        if (arm.name, seed) == ("cascade", 0) and fails:
            raise error
        return run_of(arm, seed)

    trained, told, fails = [], [], True
    arms = arms_of("constant", "cascade")
    runs, failures = train_all(arms, seeds=(0, 1), results=results, train=in_turn(train), on_run=told.append)
    assert [(run.arm, run.seed) for run in runs] == [("constant", 0), ("constant", 1), ("cascade", 1)]
    assert failures == [Failure(arm="cascade", seed=0, key="k", failed=str(error))]
    assert told[1] == failures[0]
    kept = [json.loads(line) for line in results.read_text().splitlines()]
    assert kept[1] == {"arm": "cascade", "seed": 0, "key": "k", "failed": str(error)}
    trained.clear()
    assert train_all(arms, seeds=(0, 1), results=results, train=in_turn(train))[1] == failures
    assert trained == [("cascade", 0)]
    fails = False
    runs, failures = train_all(arms, seeds=(0, 1), results=results, train=in_turn(train))
    assert (len(runs), failures) == (4, [])
    assert train_all(arms, seeds=(0, 1), results=results, train=None)[0] == runs


@pytest.mark.parametrize("error", [RecipeError("unknown"), CheckpointError("cannot be written"), KeyError("x")])
def test_what_would_stop_every_run_stops_the_study(results, arms_of, error):
    def train(arm, seed):
        raise error

    with pytest.raises(type(error)):
        train_all(arms_of("constant"), seeds=(0,), results=results, train=in_turn(train))
    assert results.read_text() == "" if results.exists() else True


def test_a_study_of_which_every_run_fails_says_why(results, arms_of):
    def train(arm, seed):
        raise VcycleError("the loss is not finite at step 7")

    with pytest.raises(VcycleError, match=r"every training failed; cascade, seed 3: the loss is not finite at step"):
        train_all(arms_of("cascade", "constant"), seeds=(3, 4), results=results, train=in_turn(train))


@pytest.mark.parametrize("line", ['{"arm": "x"}', '{"curve": [[1]]}', '{"failed": "x"}'])
def test_a_results_file_of_something_else_is_refused(results, arms_of, run_of, line):
    results.write_text(line + "\n")
    with pytest.raises(VcycleError, match=r"results.jsonl is not the results file of a study .*use another --out"):
        train_all(arms_of("constant"), seeds=(0,), results=results, train=in_turn(run_of))


def test_a_results_file_that_was_damaged_loses_nothing(results, arms_of, run_of):
    train_all(arms_of("constant"), seeds=(0, 1), results=results, train=in_turn(run_of))
    kept = results.read_text()
    results.write_text(damaged := "[1]\n" + kept)
    with pytest.raises(VcycleError, match=r"results.jsonl, line 1 is damaged: '\[1\]' is not a JSON object"):
        train_all(arms_of("constant"), seeds=(0, 1), results=results, train=in_turn(run_of))
    assert results.read_text() == damaged


def test_arms_must_be_there_and_differ(results, arms_of, run_of):
    for names in ([], ["cascade", "cascade"]):
        with pytest.raises(RecipeError, match="at least one is needed, each once"):
            train_all(arms_of(*names), seeds=(0,), results=results, train=in_turn(run_of))
