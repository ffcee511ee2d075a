"""Memory that runs out later, and ranks of which one has less than the others."""

from dataclasses import replace

import pytest
import torch

from vcycle.data.config import LoadingSection
from vcycle.errors import VcycleError
from vcycle.plan import Baseline, cascade, constant
from vcycle.train.callbacks import Callbacks
from vcycle.train.config import RunSection, TrainConfig
from vcycle.train.ranks import Ranks
from vcycle.train.run import RunFolder
from vcycle.train.trainer import fit
from vcycle.utils.jsonl import JsonLines

BASELINE = Baseline(batch=4, frames=4, size=8, clips=24, steps=24, lr=0.05, bn_batch=4)
PLAN = cascade(BASELINE)
COARSE = PLAN[0]  # the most clips, in several blocks


def test_where_memory_runs_out_later_the_step_is_done_again_in_halves(tmp_path, trainer, largest_difference, short_net):
    whole, short = trainer(tmp_path / "whole"), trainer(tmp_path / "short", model=lambda: short_net(above=16))
    for trained in (whole, short):
        trained.steps()
    assert short.model.seen[:3] == [32, 16, 16]
    assert short.told == [
        "memory ran out at step 0: from now on 32×2×4² is computed in micro-batches of 16 clips, with the same result"
    ]
    assert short.logged == [(0, short.told[0])]
    assert largest_difference(whole.model, short.model) < 1e-9
    assert short.model.body[1].num_batches_tracked == len(PLAN)
    again = trainer(tmp_path / "short", resumed=True)
    assert again.train_step.micro == {COARSE.cell: 16}


def test_parts_are_halved_until_they_fit_and_a_block_that_does_not_is_refused(tmp_path, trainer, net):
    trained = trainer(tmp_path, model=lambda: net(limit=3))
    said = r"32×2×4² does not fit into memory at step 0 .* not even in micro-batches of 4 clips"
    with pytest.raises(VcycleError, match=said):
        trained.steps()
    assert trained.model.seen == [32, 16, 8, 4]


def test_a_step_that_has_begun_to_change_the_weights_is_not_done_again(tmp_path, trainer):
    trained = trainer(tmp_path)

    def fail(*_):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    trained.state.optimizer.register_step_pre_hook(fail)
    with pytest.raises(VcycleError, match=r"while the optimizer changed the weights.*--resume"):
        trained.steps()


def test_an_error_of_another_kind_is_let_through(tmp_path, trainer):
    def refuse(labels):
        raise ValueError("labels")

    trained = trainer(tmp_path)
    trained.task.check = refuse
    with pytest.raises(ValueError, match="labels"):
        trained.steps()


def test_a_run_in_which_memory_runs_out_says_so_and_logs_it(noise, tmp_path, short_net, noisy):
    told = []
    torch.manual_seed(0)
    fit(
        plan=PLAN,
        model=short_net(above=16),
        dataset=noise,
        objective=noisy(),
        config=TrainConfig(
            run=RunSection(device="cpu"),
            loading=LoadingSection(workers=0),
        ),
        run=RunFolder(tmp_path),
        callbacks=Callbacks(on_message=told.append),
    )
    logged = [line["message"] for line in JsonLines(RunFolder(tmp_path).log).read() if line["event"] == "shortage"]
    assert len(logged) == 1
    assert logged[0] in told


def _on_rank(rank, world, folder, limits, plan, trainer, net, batch_of):
    trained = trainer(folder, model=lambda: net(limit=limits[rank]), ranks=Ranks(rank=rank, world=world), plan=plan)
    try:
        trained.search.try_shapes(0)
        for step in plan:
            trained.search(step, batch_of(step, rank, world))
    except VcycleError as error:
        return str(error), trained.train_step.micro, None
    return "", trained.train_step.micro, trained.model.state_dict()


def test_ranks_agree_on_what_fits_the_smallest_of_them(on_ranks, tmp_path, trainer, net, batch_of):
    plan = constant(replace(BASELINE, batch=20, steps=3))  # of five blocks, one rank has two and the other three
    found = on_ranks(2, _on_rank, tmp_path, (9, 5), plan, trainer, net, batch_of)
    assert [micro for _, micro, _ in found] == [{plan[0].cell: 4}] * 2
    alone = trainer(tmp_path / "alone", plan=plan)
    alone.steps()
    for error, _, state in found:
        assert error == ""
        for name, value in alone.model.state_dict().items():
            torch.testing.assert_close(state[name], value, rtol=0, atol=1e-9)


def test_a_rank_that_has_fewer_blocks_does_not_have_the_others_cut(on_ranks, tmp_path, trainer, net, batch_of):
    plan = constant(replace(BASELINE, batch=20, steps=1))
    found = on_ranks(2, _on_rank, tmp_path, (99, 99), plan, trainer, net, batch_of)
    assert [(error, micro) for error, micro, _ in found] == [("", {})] * 2


def test_what_fits_on_one_rank_alone_is_refused_on_all(on_ranks, tmp_path, trainer, net, batch_of):
    found = on_ranks(2, _on_rank, tmp_path, (99, 3), PLAN, trainer, net, batch_of)
    assert [("does not fit into memory" in error) for error, _, _ in found] == [True, True]


def test_a_rank_that_runs_out_later_ends_and_the_restart_takes_smaller_parts(tmp_path, trainer, short_net):
    trained = trainer(tmp_path, model=lambda: short_net(above=16))
    trained.search._ranks = Ranks(rank=1, world=2)
    with pytest.raises(VcycleError, match=r"micro-batches of 16 clips.* Rank 1 cannot redo the step .*--resume"):
        trained.steps()
    assert trainer(tmp_path, resumed=True).train_step.micro == {COARSE.cell: 16}


def test_a_block_that_ranks_share_is_tried_by_them_together(on_ranks, tmp_path, trainer, net, batch_of):
    plan = constant(replace(BASELINE, batch=4, steps=2))
    found = on_ranks(2, _on_rank, tmp_path, (99, 99), plan, trainer, net, batch_of)
    assert [error for error, _, _ in found] == ["", ""]


def test_a_sharded_model_is_tried_all_at_once_and_a_rank_that_it_does_not_fit_on_ends_all(tmp_path, trainer, net):
    trained = trainer(tmp_path, model=lambda: net(limit=9))
    coarse = next(cell for cell in PLAN.shapes if cell.batch == COARSE.batch)
    trained.train_step.sharded, trained.search._ranks = True, Ranks(rank=1, world=2)
    with pytest.raises(VcycleError, match=r"memory ran out at step 0: from now on 32×2×4² is .* Rank 1 cannot redo"):
        trained.search._try(COARSE, coarse, lambda _: None)
    assert trained.model.seen == [16]
    assert trained.logged == [(0, trained.told[0])]
