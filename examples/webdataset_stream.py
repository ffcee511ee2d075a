"""A plan over a WebDataset stream: `python examples/webdataset_stream.py`.

The stream stays as it is: shards, shuffling, decoding, batches of full-size clips. `vcycle.follow` joins its batches to
the plan's and resizes the clips. The plan adds the lines with `# +`.
"""

import argparse
import io
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import torch
import webdataset as wds
from clips import Clips, Net
from torch.nn.functional import cross_entropy

import vcycle  # +


def write_shards(folder, dataset, per_shard=16):
    """Write clips and classes in shards, for this example."""
    for number in range(0, len(dataset), per_shard):
        with tarfile.open(folder / f"{number // per_shard:03}.tar", "w") as tar:
            for index in range(number, min(number + per_shard, len(dataset))):
                clip, label = dataset[index]
                array = io.BytesIO()
                np.save(array, clip.numpy())
                for suffix, content in (("npy", array.getvalue()), ("cls", str(label).encode())):
                    member = tarfile.TarInfo(f"{index:06}.{suffix}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))


def stream_of(folder, batch):
    """The stream: shuffled shards and clips, in batches of `(B, C, T, H, W)`, labels and names."""
    shards = sorted(str(path) for path in folder.glob("*.tar"))
    stream = wds.WebDataset(shards, shardshuffle=len(shards), nodesplitter=wds.split_by_node, seed=0)
    return stream.shuffle(24).decode().to_tuple("npy", "cls", "__key__").batched(batch)


def main():
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=72, help="length of the training at the constant shape")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    dataset, model = Clips(), Net()
    baseline = vcycle.Baseline(batch=4, frames=8, size=16, clips=len(dataset), steps=arguments.steps, lr=0.1)  # +
    plan = vcycle.cascade(baseline)  # +
    model = vcycle.convert_batchnorm(model)  # +
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with tempfile.TemporaryDirectory() as folder:
        write_shards(Path(folder), dataset)
        for step, (clips, labels, _) in vcycle.follow(stream_of(Path(folder), 4), plan):  # +
            vcycle.apply(step, model, optimizer, clips)  # +
            loss = cross_entropy(model(clips), torch.as_tensor(labels))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(f"step {step.index}: {step.batch} clips of {step.shape}, LR {step.lr:.3f}, loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
