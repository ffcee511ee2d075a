"""Under torchrun, trains the yardstick with each setup, whole and resumed, and runs examples: `FOLDER SETUP...`.

Each rank writes what it found to `FOLDER/rank.pt`: traces, or the error of a setup.
"""

import os
import sys
import traceback
from pathlib import Path

import setups
import torch
from torch import distributed
from yardstick import RESUMED_AT

import vcycle


def refusal_of(call):
    """The message of the error with which a call is refused."""
    try:
        call()
    except vcycle.VcycleError as error:
        return str(error)
    return "not refused"


def main(folder, names):
    rank = int(os.environ["RANK"])
    distributed.init_process_group("gloo")
    found = {}
    for name in names:
        place = folder / name
        place.mkdir(exist_ok=True)
        setup = getattr(setups, name)
        try:
            found[name] = {"whole": vars(setup(place)), "resumed": vars(setup(place, RESUMED_AT))}
        except BaseException:
            # The other rank may wait for this one: end both.
            torch.save({name: traceback.format_exc()}, folder / f"{rank}.pt")
            os._exit(1)
    found["refusals"] = {
        name: [refusal_of(call) for call in calls] for name, calls in setups.REFUSED_ON_TWO.items() if name in names
    }
    distributed.destroy_process_group()
    torch.save(found, folder / f"{rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
