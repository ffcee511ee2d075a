"""A plan under the Trainer of Hugging Face transformers, with a small TimeSformer of random weights.

The plan adds the lines with `# +`, on any number of devices.
"""

import argparse
import tempfile

import torch
from clips import CLASSES, Clips
from transformers import TimesformerConfig, TimesformerForVideoClassification, TrainingArguments

import vcycle  # +
from vcycle.integrations.transformers import PlanTrainer  # +

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=72, help="length of the training at the constant shape")
arguments = parser.parse_args()


class Items(Clips):
    """Items as a video processor of transformers makes them: dicts of the model's arguments, frames first."""

    def __getitem__(self, index):
        """A clip `(T, C, H, W)` and its class."""
        clip, label = super().__getitem__(index)
        return {"pixel_values": clip.transpose(0, 1), "labels": label}


torch.manual_seed(0)
dataset = Items()
small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
config = TimesformerConfig(image_size=16, patch_size=4, num_frames=8, num_labels=CLASSES, **small)
# Sides that the patch size divides, and frames that the model takes.
shapes = [(0.5, 0.5), (1, 0.5), (1, 0.75), (1, 1)]  # +
baseline = vcycle.Baseline(batch=4, frames=8, size=16, clips=len(dataset), steps=arguments.steps, lr=1e-3)  # +
with tempfile.TemporaryDirectory() as folder:
    trainer = PlanTrainer(  # +
        TimesformerForVideoClassification(config),
        TrainingArguments(folder, logging_steps=1, save_strategy="no", report_to="none", use_cpu=True),
        train_dataset=dataset,
        plan=vcycle.cascade(baseline, shapes=shapes),  # +
    )
    trainer.train()
