"""Small configurations with the keys of other tools, written for these tests."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml


def kinetics(**changes: Any) -> dict[str, Any]:
    """PySlowFast: SlowFast 8×8 R50 by steps, with multigrid; `changes` are sections to merge."""
    pathways = [[1, 1], [2, 2], [2, 2], [2, 2]]
    config: dict[str, Any] = {
        "TRAIN": {"ENABLE": True, "DATASET": "kinetics", "BATCH_SIZE": 64, "EVAL_PERIOD": 10, "AUTO_RESUME": True},
        "MULTIGRID": {"SHORT_CYCLE": True, "LONG_CYCLE": True},
        "DATA": {
            "NUM_FRAMES": 32,
            "SAMPLING_RATE": 2,
            "TRAIN_JITTER_SCALES": [256, 320],
            "TRAIN_CROP_SIZE": 224,
            "TEST_CROP_SIZE": 224,
            "INPUT_CHANNEL_NUM": [3, 3],
        },
        "SLOWFAST": {"ALPHA": 4, "BETA_INV": 8, "FUSION_CONV_CHANNEL_RATIO": 2, "FUSION_KERNEL_SZ": 7},
        "RESNET": {
            "DEPTH": 50,
            "WIDTH_PER_GROUP": 64,
            "ZERO_INIT_FINAL_BN": True,
            "NUM_BLOCK_TEMP_KERNEL": [[3, 3], [4, 4], [6, 6], [3, 3]],
            "SPATIAL_STRIDES": pathways,
        },
        "NONLOCAL": {"LOCATION": [[[], []]] * 4, "INSTANTIATION": "dot_product"},
        "BN": {"USE_PRECISE_STATS": True, "NUM_BATCHES_PRECISE": 200},
        "SOLVER": {
            "BASE_LR": 0.1,
            "LR_POLICY": "steps_with_relative_lrs",
            "LRS": [1, 0.1, 0.01, 0.001],
            "STEPS": [0, 94, 154, 196],
            "MAX_EPOCH": 239,
            "MOMENTUM": 0.9,
            "WEIGHT_DECAY": "1e-4",  # text, as YAML 1.1 reads it
            "WARMUP_EPOCHS": 34.0,
            "WARMUP_START_LR": 0.01,
            "OPTIMIZING_METHOD": "sgd",
        },
        "MODEL": {"ARCH": "slowfast", "NUM_CLASSES": 400, "LOSS_FUNC": "cross_entropy", "DROPOUT_RATE": 0.5},
        "TEST": {"DATASET": "kinetics", "BATCH_SIZE": 64},
        "DATA_LOADER": {"NUM_WORKERS": 8, "PIN_MEMORY": True},
        "NUM_GPUS": 8,
        "NUM_SHARDS": 1,
        "RNG_SEED": 0,
        "OUTPUT_DIR": ".",
    }
    return merge(config, changes)


def ssv2() -> dict[str, Any]:
    """PySlowFast: SlowFast 16×8 R50 on Something-Something V2, with multigrid."""
    return kinetics(
        TRAIN={"DATASET": "ssv2", "BATCH_SIZE": 16, "CHECKPOINT_FILE_PATH": "nowhere.pkl"},
        DATA={"NUM_FRAMES": 64, "RANDOM_FLIP": False, "INV_UNIFORM_SAMPLE": True, "REVERSE_INPUT_CHANNEL": True},
        BN={"NORM_TYPE": "sync_batchnorm", "NUM_SYNC_DEVICES": 4},
        SOLVER={
            "BASE_LR": 0.03,
            "STEPS": [0, 14, 18],
            "MAX_EPOCH": 22,
            "WARMUP_EPOCHS": 0.19,
            "WARMUP_START_LR": 0.0001,
            "WEIGHT_DECAY": "1e-6",
        },
        MODEL={"NUM_CLASSES": 174},
        TEST={"NUM_ENSEMBLE_VIEWS": 1, "NUM_SPATIAL_CROPS": 1},
    )


def charades() -> dict[str, Any]:
    """PySlowFast: SlowFast 16×8 R50 on Charades, with multigrid."""
    return kinetics(
        TRAIN={"DATASET": "charades", "BATCH_SIZE": 16, "CHECKPOINT_FILE_PATH": "nowhere.pkl"},
        DATA={
            "NUM_FRAMES": 64,
            "TRAIN_JITTER_SCALES": [256, 340],
            "TEST_CROP_SIZE": 256,
            "MULTI_LABEL": True,
            "ENSEMBLE_METHOD": "max",
        },
        SOLVER={
            "BASE_LR": 0.0375,
            "STEPS": [0, 41, 49],
            "MAX_EPOCH": 57,
            "WARMUP_EPOCHS": 4.0,
            "WARMUP_START_LR": 0.0001,
        },
        MODEL={"NUM_CLASSES": 157, "LOSS_FUNC": "bce_logit", "HEAD_ACT": "sigmoid"},
        TEST={"NUM_ENSEMBLE_VIEWS": 10, "NUM_SPATIAL_CROPS": 3},
    )


def i3d(**changes: Any) -> dict[str, Any]:
    """PySlowFast: I3D 8×8 R50 from ImageNet weights, with non-local blocks and without multigrid."""
    config = kinetics(
        TRAIN={"CHECKPOINT_INFLATE": True},
        DATA={"NUM_FRAMES": 8, "SAMPLING_RATE": 8, "TEST_CROP_SIZE": 256, "INPUT_CHANNEL_NUM": [3]},
        RESNET={
            "NUM_BLOCK_TEMP_KERNEL": [[3], [4], [6], [3]],
            "SPATIAL_STRIDES": [[1], [2], [2], [2]],
        },
        NONLOCAL={"LOCATION": [[[]], [[1, 3]], [[1, 3, 5]], [[]]], "INSTANTIATION": "softmax"},
        SOLVER={"BASE_LR": 0.01, "STEPS": [0, 44, 88, 118], "MAX_EPOCH": 118, "WARMUP_EPOCHS": 0.0},
        MODEL={"ARCH": "i3d"},
    )
    del config["MULTIGRID"]
    return merge(config, changes)


def basicvsr(**changes: Any) -> dict[str, Any]:
    """BasicSR: BasicVSR on REDS."""
    config: dict[str, Any] = {
        "name": "vsr",
        "model_type": "VideoRecurrentModel",
        "scale": 4,
        "num_gpu": 8,
        "manual_seed": 0,
        "datasets": {
            "train": {
                "name": "REDS",
                "type": "REDSRecurrentDataset",
                "dataroot_gt": "nowhere/REDS/train_sharp",
                "dataroot_lq": "nowhere/REDS/train_sharp_bicubic/X4",
                "meta_info_file": "nowhere/meta.txt",
                "val_partition": "REDS4",
                "io_backend": {"type": "disk"},
                "num_frame": 15,
                "gt_size": 256,
                "interval_list": [1],
                "random_reverse": False,
                "use_hflip": True,
                "use_rot": True,
                "num_worker_per_gpu": 6,
                "batch_size_per_gpu": 4,
                "dataset_enlarge_ratio": 200,
                "prefetch_mode": None,
            },
            "val": {"name": "REDS4", "dataroot_gt": "nowhere/REDS4/GT", "cache_data": True, "num_frame": -1},
        },
        "network_g": {"type": "BasicVSR", "num_feat": 64, "num_block": 30, "spynet_path": "nowhere/spynet.pth"},
        "path": {"pretrain_network_g": None, "strict_load_g": True, "resume_state": None},
        "train": {
            "ema_decay": 0.999,
            "optim_g": {"type": "Adam", "lr": 2e-4, "weight_decay": 0, "betas": [0.9, 0.99]},
            "scheduler": {
                "type": "CosineAnnealingRestartLR",
                "periods": [300000],
                "restart_weights": [1],
                "eta_min": 1e-7,
            },
            "total_iter": 300000,
            "warmup_iter": -1,
            "fix_flow": 5000,
            "flow_lr_mul": 0.125,
            "pixel_opt": {"type": "CharbonnierLoss", "loss_weight": 1.0, "reduction": "mean"},
        },
        "val": {
            "val_freq": 5000.0,
            "save_img": False,
            "metrics": {"psnr": {"type": "calculate_psnr", "crop_border": 0, "test_y_channel": False}},
        },
        "logger": {"print_freq": 100, "save_checkpoint_freq": 5000.0, "use_tb_logger": True},
        "dist_params": {"backend": "nccl", "port": 29500},
        "find_unused_parameters": True,
    }
    return merge(config, changes)


def edvr() -> dict[str, Any]:
    """BasicSR: EDVR-M on REDS, the second of its two phases."""
    config = basicvsr(
        model_type="EDVRModel",
        num_gpu="auto",
        datasets={"train": {"type": "REDSDataset", "num_frame": 5}},
        path={"pretrain_network_g": "nowhere/first.pth", "strict_load_g": False},
        train={
            "optim_g": {"lr": 4e-4},
            "scheduler": {"periods": [50000, 550000], "restart_weights": [1, 0.5]},
            "total_iter": 600000,
            "tsa_iter": 50000,
            "dcn_lr_mul": 1,
            "pixel_opt": {"reduction": "sum"},
        },
    )
    config["network_g"] = {
        "type": "EDVR",
        "num_feat": 64,
        "num_frame": 5,
        "deformable_groups": 8,
        "num_extract_block": 5,
        "num_reconstruct_block": 10,
        "hr_in": False,
        "with_tsa": True,
    }
    del config["train"]["fix_flow"], config["train"]["flow_lr_mul"]
    return config


MULTIGRID_0X = """\
model = dict(
    type='Recognizer3D',
    backbone=dict(
        type='ResNet3dSlowFast', pretrained=None, resample_rate=4, speed_ratio=4, channel_ratio=8,
        slow_pathway=dict(type='resnet3d', depth=50, lateral=True, lateral_norm=True, fusion_kernel=7,
                          conv1_kernel=(1, 7, 7), inflate=(0, 0, 1, 1), norm_eval=False),
        fast_pathway=dict(type='resnet3d', depth=50, lateral=False, base_channels=8, conv1_kernel=(5, 7, 7))),
    cls_head=dict(type='SlowFastHead', in_channels=2304, num_classes=400, dropout_ratio=0.5))
norm = dict(mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], to_bgr=False)
training = [
    dict(type='SampleFrames', clip_len=32, frame_interval=2, num_clips=1),
    dict(type='RawFrameDecode'),
    dict(type='Resize', scale=(-1, 256)),
    dict(type='RandomResizedCrop'),
    dict(type='Resize', scale=(224, 224), keep_ratio=False),
    dict(type='Flip', flip_ratio=0.5),
    dict(type='Normalize', **norm),
]
testing = training[:1] + [dict(type='ThreeCrop', crop_size=256)]
data = dict(
    videos_per_gpu=8, workers_per_gpu=4,
    train=dict(type='VideoDataset', ann_file='data/kinetics400/train.txt', data_prefix='data', pipeline=training),
    test=dict(type='VideoDataset', ann_file='data/kinetics400/val.txt', data_prefix='data', pipeline=testing))
optimizer = dict(type='SGD', lr=0.1, momentum=0.9, weight_decay=0.0001)
optimizer_config = dict(grad_clip=dict(max_norm=40, norm_type=2))
lr_config = dict(policy='step', step=[94, 154, 196])
total_epochs = 239
evaluation = dict(interval=3)
multigrid = dict(long_cycle=True, short_cycle=True, epoch_factor=1.5,
                 long_cycle_factors=[[0.25, 0.7071], [0.5, 0.7071], [0.5, 1], [1, 1]],
                 short_cycle_factors=[0.5, 0.7071], default_s=(224, 224))
precise_bn = dict(num_iters=200, interval=3)
load_from = None
"""
"""MMAction2 0.x: SlowFast with multigrid."""

BASE_1X = """\
model = dict(
    type='Recognizer3D',
    backbone=dict(type='ResNet3dSlowOnly', depth=50, pretrained=None, inflate=(0, 0, 1, 1), conv1_kernel=(1, 7, 7),
                  conv1_stride_t=1, pool1_stride_t=1, norm_eval=False),
    cls_head=dict(type='I3DHead', in_channels=2048, num_classes=400, spatial_type='avg', dropout_ratio=0.5,
                  average_clips='prob'),
    data_preprocessor=dict(type='ActionDataPreprocessor', mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375],
                           format_shape='NCTHW'))
default_hooks = dict(checkpoint=dict(type='CheckpointHook', interval=1))
"""

CONFIG_1X = """\
_base_ = ['base.py']
model = dict(backbone=dict(pretrained='torchvision://resnet50'))
pipeline = [
    dict(type='DecordInit'),
    dict(type='SampleFrames', clip_len=8, frame_interval=8, num_clips=1),
    dict(type='DecordDecode'),
    dict(type='RandomRescale', scale_range=(256, 320)),
    dict(type='RandomCrop', size=224),
    dict(type='Flip', flip_ratio=0.5),
    dict(type='PackActionInputs'),
]
train_dataloader = dict(
    batch_size=8, num_workers=8, sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(type='VideoDataset', ann_file='data/own.txt', data_prefix=dict(video='data'), pipeline=pipeline))
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=100, val_interval=5)
optim_wrapper = dict(
    type='AmpOptimWrapper',
    optimizer=dict(type='SGD', lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True),
    clip_grad=dict(max_norm=40, norm_type=2))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.1, by_epoch=True, begin=0, end=10, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', T_max=100, eta_min=0, by_epoch=True, begin=0, end=100),
]
auto_scale_lr = dict(enable=False, base_batch_size=64)
"""
"""MMAction2 1.x, over `BASE_1X`."""

AUGMENTED_1X = """\
_base_ = ['plain.py']
model = dict(data_preprocessor=dict(blending=dict(type='RandomBatchAugment', augments=[
    dict(type='MixupBlending', alpha=0.8, num_classes=400), dict(type='CutmixBlending', alpha=1, num_classes=400)])))
pipeline = [
    dict(type='DecordInit'),
    dict(type='SampleFrames', clip_len=8, frame_interval=8, num_clips=1),
    dict(type='DecordDecode'),
    dict(type='RandomRescale', scale_range=(256, 320)),
    dict(type='PytorchVideoWrapper', op='RandAugment', magnitude=7, num_layers=4),
    dict(type='RandomCrop', size=224),
    dict(type='ColorJitter', brightness=0.4, hue=(-0.1, 0.1)),
    dict(type='RandomErasing', erase_prob=0.3, min_area_ratio=0.1, mode='rand'),
    dict(type='PackActionInputs'),
]
train_dataloader = dict(
    collate_fn=dict(type='repeat_pseudo_collate'),
    dataset=dict(type='RepeatAugDataset', num_repeats=2, sample_once=True, pipeline=pipeline))
"""
"""The same with the augmentation of MViT: clips of 2 views of a video in each batch."""


def merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Merge sections key by key."""
    found = dict(base)
    for key, value in changes.items():
        below = found.get(key)
        found[key] = merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return found


class _NoAliases(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


CONFIGS = {"kinetics": kinetics, "ssv2": ssv2, "charades": charades, "i3d": i3d, "basicvsr": basicvsr, "edvr": edvr}


def write_config(path: Path, name: str, **changes: Any) -> None:
    """Write the configuration of a name, with sections changed; the base of one in Python beside it."""
    if name.startswith("mmaction2"):
        path.with_name("base.py").write_text(BASE_1X)
        path.with_name("plain.py").write_text(CONFIG_1X)
        texts = {"mmaction2_0x": MULTIGRID_0X, "mmaction2_1x": CONFIG_1X, "mmaction2_augmented": AUGMENTED_1X}
        path.write_text(texts[name])
    else:
        path.write_text(yaml.dump(merge(CONFIGS[name](), changes), Dumper=_NoAliases, sort_keys=False))


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a configuration, and returns its path."""

    def write(name: str, **changes: Any) -> Path:
        path = tmp_path / f"{name}.{'py' if name.startswith('mmaction2') else 'yaml'}"
        write_config(path, name, **changes)
        return path

    return write
