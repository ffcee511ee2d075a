"""Flip every bit of a checkpoint, one at a time: each is detected, or was nothing that is read.

Prints one JSON object. Takes some minutes.
"""

import json
import sys
import tempfile
from pathlib import Path

import torch

from vcycle.errors import CheckpointError
from vcycle.plan import Baseline, multigrid
from vcycle.train.checkpoint import Checkpoint, load_checkpoint, save_checkpoint


def small_checkpoint() -> Checkpoint:
    """A checkpoint of every kind of contents, as small as it gets."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    return Checkpoint(
        step=5,
        plan=multigrid(Baseline(batch=4, frames=8, size=64, clips=37, epochs=12, lr=0.1)),
        seed=3,
        model=model.state_dict(),
        optimizer=optimizer.state_dict(),
        optimizer_kind="SGD",
        totals={"seen": 12, "seconds": 1.5, "curve": []},
    )


def same(one: Checkpoint, other: Checkpoint) -> bool:
    """Whether two checkpoints hold the same, to the last bit."""

    def plain(value: object) -> object:
        if isinstance(value, torch.Tensor):
            return str(value.dtype), tuple(value.shape), value.numpy().tobytes()
        if isinstance(value, dict):
            return {key: plain(inner) for key, inner in value.items()}
        return [plain(inner) for inner in value] if isinstance(value, list | tuple) else value

    return plain(vars(one)) == plain(vars(other))


def main() -> None:
    """Flip the bits of each byte that is named by its distance, or of all."""
    stride = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    whole = small_checkpoint()
    with tempfile.TemporaryDirectory() as folder:
        path = save_checkpoint(Path(folder), whole)
        content = path.read_bytes()
        found = {"detected": 0, "harmless": 0, "undetected": 0, "other errors": 0}
        for place in range(0, len(content), stride):
            for bit in range(8):
                damaged = bytearray(content)
                damaged[place] ^= 1 << bit
                path.write_bytes(damaged)
                try:
                    read = load_checkpoint(path)
                except CheckpointError:
                    found["detected"] += 1
                except Exception as error:
                    found["other errors"] += 1
                    print(f"byte {place}, bit {bit}: {error!r}", file=sys.stderr)
                else:
                    found["harmless" if same(read, whole) else "undetected"] += 1
    print(json.dumps({"bytes": len(content), "flipped": sum(found.values()), **found}))


if __name__ == "__main__":
    main()
