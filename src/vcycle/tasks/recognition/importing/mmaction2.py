"""Translates MMAction2's configurations, of versions 0.x (with multigrid) and 1.x."""

from collections.abc import Mapping

from vcycle.tasks.importing import (
    Importer,
    Rule,
    differs,
    only,
    to,
    translated,
    unneeded,
)
from vcycle.tasks.recognition.importing import mmaction2_pipeline as pipeline
from vcycle.tasks.recognition.importing import mmaction2_rules as rules
from vcycle.tasks.recognition.importing.mmaction2_pipeline import TEST, TRAIN
from vcycle.tasks.recognition.importing.mmaction2_rules import BACKBONE

__all__ = ["MMACTION2"]

_LOADS = unneeded("vcycle loads and decodes on its own")
_EVALUATION = unneeded("a validation takes one center clip at full resolution")
_MODEL = translated("model")


def _in_pipelines(splits: tuple[str, ...], of_transforms: Mapping[str, Rule]) -> dict[str, Rule]:
    """Rules for arguments of transforms, such as `Flip.flip_ratio`; of a name that occurs twice, for all."""
    found = {}
    for split in splits:
        for name, rule in of_transforms.items():
            transform, _, argument = name.partition(".")
            for suffix in ("", "#*"):
                found[f"{split}.pipeline[{transform}{suffix}].{argument}"] = rule
    return found


_CROP = differs("vcycle crops squares of a range of sizes (sampling.field); the aspect ratio stays")
_AUGMENTATION = differs("vcycle augments clips in other ways: augment")
_VIDEOS = only("VideoDataset", "RepeatAugDataset", why="vcycle reads video files: data=FOLDER")
_RANDAUGMENT = differs("torchvision's RandAugment: the operations differ")
_ERASING = translated("augment.erasing")
_BLENDING = "model.data_preprocessor.blending"

MMACTION2 = Importer(
    tool="MMAction2",
    suffixes=(".py",),
    has="model and train_dataloader or data",
    owns=lambda data: "model" in data and ("train_dataloader" in data or "data" in data),
    model_key=f"{BACKBONE}.type",
    compose=rules.compose,
    rules={
        # The schedule.
        "total_epochs": rules.epochs("training.epochs"),
        "runner.max_epochs": rules.epochs("training.epochs"),
        "runner.max_iters": to("training.steps"),
        "runner.type": unneeded("the length tells"),
        "train_cfg.max_epochs": rules.epochs("training.epochs"),
        "train_cfg.max_iters": to("training.steps"),
        "train_cfg.type": unneeded("the length tells"),
        "train_cfg.val_interval": rules.epochs("run.validate_every"),
        "train_cfg.val_begin": unneeded("vcycle validates from the start"),
        "lr_config.policy": rules.policy,
        "lr_config.step": rules.milestones,
        "lr_config.gamma": to("training.decay.gamma"),
        "lr_config.min_lr": to("training.decay.floor"),
        "lr_config.min_lr_ratio": rules.floor,
        "lr_config.by_epoch": unneeded("vcycle's LR changes at every step"),
        "lr_config.warmup": only("linear", why="vcycle's warmup is linear"),
        "lr_config.warmup_by_epoch": translated("training.warmup.length"),
        "lr_config.warmup_iters": rules.warmup_length,
        "lr_config.warmup_ratio": rules.warmup_start,
        "param_scheduler[LinearLR].end": rules.warmup_length,
        "param_scheduler[LinearLR].start_factor": rules.warmup_start,
        "param_scheduler[LinearLR].by_epoch": translated("training.warmup.length"),
        "param_scheduler[LinearLR].begin": only(0, why="vcycle warms up from step 0"),
        "param_scheduler[LinearLR].*": unneeded("vcycle's LR changes at every step"),
        "param_scheduler[MultiStepLR].type": translated(training__decay__law="steps"),
        "param_scheduler[MultiStepLR].milestones": rules.milestones,
        "param_scheduler[MultiStepLR].gamma": to("training.decay.gamma"),
        "param_scheduler[MultiStepLR].begin": only(0, why="vcycle counts milestones from step 0"),
        "param_scheduler[MultiStepLR].*": unneeded("the length tells"),
        "param_scheduler[CosineAnnealingLR].type": translated(training__decay__law="cosine"),
        "param_scheduler[CosineAnnealingLR].eta_min": to("training.decay.floor"),
        "param_scheduler[CosineAnnealingLR].eta_min_ratio": rules.floor,
        "param_scheduler[CosineAnnealingLR].begin": only(
            0, why="vcycle's cosine starts at step 0; warmup replaces its beginning"
        ),
        "param_scheduler[CosineAnnealingLR].*": unneeded("the cosine is as long as the training"),
        "multigrid.long_cycle": translated("plan"),
        "multigrid.short_cycle": translated("plan"),
        "multigrid.epoch_factor": rules.option("epoch_factor"),
        "multigrid.long_cycle_factors": rules.option("long_shapes", "long"),
        "multigrid.short_cycle_factors": rules.option("short_sizes", "short"),
        "multigrid.default_s": unneeded("training.size is the full size"),
        "precise_bn.num_iters": rules.precise,
        "precise_bn.interval": unneeded("vcycle recomputes the statistics before each validation"),
        # The optimizer.
        "optimizer.type": to("optimizer.name", convert=str.lower),
        "optimizer.lr": to("training.lr"),
        "optimizer.momentum": to("optimizer.momentum"),
        "optimizer.nesterov": to("optimizer.nesterov"),
        "optimizer.betas": to("optimizer.betas"),
        "optimizer.weight_decay": to("optimizer.weight_decay"),
        "optim_wrapper.type": rules.optimizer_wrapper,
        "optim_wrapper.loss_scale": unneeded("vcycle scales the loss of fp16"),
        "optim_wrapper.optimizer.type": to("optimizer.name", convert=str.lower),
        "optim_wrapper.optimizer.lr": to("training.lr"),
        "optim_wrapper.optimizer.momentum": to("optimizer.momentum"),
        "optim_wrapper.optimizer.nesterov": to("optimizer.nesterov"),
        "optim_wrapper.optimizer.betas": to("optimizer.betas"),
        "optim_wrapper.optimizer.weight_decay": to("optimizer.weight_decay"),
        "*paramwise_cfg*": differs("norms and biases have no weight decay; vcycle has no other groups"),
        "optim_wrapper.clip_grad": only(None, why="vcycle clips by norm: training.clip_grad_norm"),
        "optim_wrapper.clip_grad.max_norm": to("training.clip_grad_norm"),
        "optim_wrapper.clip_grad.norm_type": only(2, why="vcycle clips by the 2-norm"),
        "optimizer_config.grad_clip": only(None, why="vcycle clips by norm: training.clip_grad_norm"),
        "optimizer_config.grad_clip.max_norm": to("training.clip_grad_norm"),
        "optimizer_config.grad_clip.norm_type": only(2, why="vcycle clips by the 2-norm"),
        # The data.
        "data.videos_per_gpu": rules.batch_rule,
        "data.train_dataloader.videos_per_gpu": rules.batch_rule,
        "train_dataloader.batch_size": rules.batch_rule,
        "auto_scale_lr.base_batch_size": translated("training.batch", "training.lr_batch"),
        "auto_scale_lr.enable": unneeded("the LR follows training.batch, from training.lr_batch"),
        "data.workers_per_gpu": to("data.workers"),
        "train_dataloader.num_workers": to("data.workers"),
        "train_dataloader.sampler.*": unneeded("vcycle's stream of samples shuffles"),
        "train_dataloader.persistent_workers": _LOADS,
        "train_dataloader.pin_memory": _LOADS,
        "train_dataloader.collate_fn.*": _LOADS,
        **{f"{split}.type": _VIDEOS for split in TRAIN},
        **{f"{split}.num_repeats": pipeline.repeats for split in TRAIN},
        **{f"{split}.sample_once": unneeded("each clip draws its own frames") for split in TRAIN},
        **{f"{split}.ann_file": rules.path_of("data.path", "file") for split in TRAIN},
        **{f"{split}.data_prefix": rules.path_of("data.root", "folder") for split in TRAIN},
        **{f"{split}.data_prefix.*": rules.path_of("data.root", "folder") for split in TRAIN},
        **{f"{split}.multi_class": to("training.multi_label", convert=bool) for split in TRAIN},
        **{f"{split}.num_classes": unneeded("the data has the classes") for split in TRAIN},
        **{f"{split}.test_mode": unneeded("`vcycle eval` tests a run") for split in TRAIN},
        **{f"{split}.ann_file": rules.path_of("data.val", "file") for split in ("data.val", "val_dataloader.dataset")},
        **_in_pipelines(
            TRAIN,
            {
                **dict.fromkeys(
                    ("SampleFrames.clip_len", "UniformSample.clip_len", "UniformSampleFrames.clip_len"),
                    translated("training.frames"),
                ),
                "SampleFrames.frame_interval": translated("sampling.stride"),
                "SampleFrames.num_clips": rules.num_clips,
                "SampleFrames.out_of_bound_opt": translated("sampling.short"),
                "SampleFrames.type": translated("sampling"),
                "UniformSample*.num_clips": rules.num_clips,
                "UniformSample*.type": translated("sampling"),
                "DenseSampleFrames.*": differs("vcycle draws the start of a clip from the whole video"),
                "Resize.scale": rules.scale,
                "Resize.type": translated("sampling", "training.size"),
                "Resize.keep_ratio": unneeded("vcycle crops squares"),
                "Resize.*": only("bilinear", why="vcycle resizes bilinearly"),
                "RandomRescale.*": translated("sampling.short_side"),
                "RandomCrop.*": translated("training.size"),
                "CenterCrop.*": differs("vcycle crops at random"),
                "RandomResizedCrop.*": _CROP,
                "MultiScaleCrop.input_size": translated("training.size"),
                "MultiScaleCrop.scales": translated("sampling.field"),
                "MultiScaleCrop.*": _CROP,
                "Flip.flip_ratio": rules.flip,
                "Flip.type": translated("sampling.flip"),
                "Flip.direction": only("horizontal", why="vcycle flips horizontally"),
                "Normalize.mean": rules.normalisation("sampling.mean"),
                "Normalize.std": rules.normalisation("sampling.std"),
                "Normalize.to_bgr": only(False, why="vcycle reads RGB"),
                "Normalize.type": unneeded("vcycle always normalizes"),
                **dict.fromkeys(
                    (
                        *("DecordInit.*", "DecordDecode.*", "OpenCVInit.*", "OpenCVDecode.*", "PyAVInit.*"),
                        *("PyAVDecode.*", "RawFrameDecode.*", "FormatShape.*", "PackActionInputs.*", "Collect.*"),
                        *("ToTensor.*",),
                    ),
                    _LOADS,
                ),
                "ColorJitter.type": translated("augment.color_jitter"),
                **dict.fromkeys(
                    ("ColorJitter.brightness", "ColorJitter.contrast", "ColorJitter.saturation", "ColorJitter.hue"),
                    pipeline.jitter,
                ),
                "ColorJitter.*": _AUGMENTATION,
                **dict.fromkeys(
                    (
                        *("RandomErasing.type", "RandomErasing.erase_prob", "RandomErasing.min_area_ratio"),
                        *("RandomErasing.max_area_ratio", "RandomErasing.aspect_range"),
                    ),
                    _ERASING,
                ),
                "RandomErasing.mode": pipeline.erase_fill,
                "RandomErasing.*": differs("vcycle fills with normal noise, or with sampling.mean"),
                "PytorchVideoWrapper.op": only("RandAugment", why="vcycle augments clips in other ways: augment"),
                "PytorchVideoWrapper.*": _RANDAUGMENT,
                "Imgaug.*": _AUGMENTATION,
                "*.*": differs("vcycle has no such transform"),
            },
        ),
        **_in_pipelines(
            TEST,
            {
                "SampleFrames.num_clips": translated("evaluation.clips"),
                "ThreeCrop.*": translated("evaluation.crops", "evaluation.size"),
                "CenterCrop.*": translated("evaluation.crops", "evaluation.size"),
                "TenCrop.*": differs("vcycle has crops along the longer side: evaluation.crops"),
                "Resize.scale": translated("evaluation.short_side"),
                "*.*": unneeded("as in training"),
            },
        ),
        "data.test.*": unneeded("`vcycle eval` tests a run: data.test=FILE"),
        "test_dataloader.*": unneeded("`vcycle eval` tests a run: data.test=FILE"),
        "data.test_dataloader.*": unneeded("`vcycle eval` tests a run"),
        "data.val.*": _EVALUATION,
        "val_dataloader.*": _EVALUATION,
        "data.val_dataloader.*": _EVALUATION,
        "val_evaluator*": _EVALUATION,
        "test_evaluator*": unneeded("vcycle measures top-1 and top-5, or mAP"),
        # The network.
        "model.type": unneeded("the backbone names the model"),
        f"{BACKBONE}.type": _MODEL,
        f"{BACKBONE}.depth": _MODEL,
        f"{BACKBONE}.resample_rate": translated("model", "sampling.stride"),
        f"{BACKBONE}.speed_ratio": _MODEL,
        f"{BACKBONE}.channel_ratio": _MODEL,
        f"{BACKBONE}.slow_pathway.depth": _MODEL,
        f"{BACKBONE}.fast_pathway.depth": rules.fast_depth,
        f"{BACKBONE}.slow_pathway.fusion_kernel": _MODEL,
        f"{BACKBONE}.slow_pathway.lateral_norm": only(True, why="vcycle's SlowFast normalizes what it fuses"),
        f"{BACKBONE}.slow_pathway.lateral": only(True, why="vcycle's SlowFast fuses its pathways"),
        f"{BACKBONE}.fast_pathway.lateral": only(False, why="vcycle fuses into the slow pathway alone"),
        f"{BACKBONE}.fast_pathway.base_channels": only(8, why="model.options.beta_inverse gives the width"),
        f"{BACKBONE}.fast_pathway.conv1_kernel": only([5, 7, 7], why="vcycle's fast stem is 5×7×7"),
        f"{BACKBONE}.slow_pathway.conv1_kernel": only([1, 7, 7], why="vcycle's slow stem is 1×7×7"),
        f"{BACKBONE}.slow_pathway.inflate": only(
            [0, 0, 1, 1], why="model.options.slow_kernels says which stages see time"
        ),
        f"{BACKBONE}.inflate": only(
            *([0, 0, 1, 1], [[1, 1, 1], [1, 0, 1, 0], [1, 0, 1, 0, 1, 0], [0, 1, 0]], None),
            why="model.options.temporal_kernels says which blocks see time",
        ),
        f"{BACKBONE}.conv1_kernel": lambda value, source: only(
            [5, 7, 7] if source.get(f"{BACKBONE}.type") == "ResNet3d" else [1, 7, 7],
            why="the stem is the published one",
        )(value, source),
        f"{BACKBONE}*conv1_stride_t": only(1, why="vcycle's stem keeps all frames: the network is another one"),
        f"{BACKBONE}*pool1_stride_t": only(1, why="vcycle's stem keeps all frames: the network is another one"),
        f"{BACKBONE}*dilations": only([1, 1, 1, 1], why="vcycle's networks have no dilation"),
        f"{BACKBONE}*zero_init_residual": _MODEL,
        f"{BACKBONE}*base_channels": _MODEL,
        f"{BACKBONE}*norm_eval": only(False, why="training.freeze=batchnorm freezes BatchNorm"),
        f"{BACKBONE}*conv_cfg.*": unneeded("vcycle's networks are 3-D"),
        f"{BACKBONE}.norm_cfg.type": translated("training.bn_batch"),
        f"{BACKBONE}*norm_cfg.*": unneeded("vcycle trains BatchNorm"),
        f"{BACKBONE}*with_cp": only(False, why="vcycle splits batches that do not fit into micro-batches"),
        f"{BACKBONE}.non_local": rules.nonlocal_blocks,
        f"{BACKBONE}.non_local_cfg.mode": rules.nonlocal_mode,
        f"{BACKBONE}.non_local_cfg.sub_sample": only(True, why="vcycle pools before non-local blocks"),
        f"{BACKBONE}.non_local_cfg.*": unneeded("the form tells"),
        f"{BACKBONE}.pretrained": rules.pretrained,
        f"{BACKBONE}.*.pretrained": only(None, why="give the weights of the whole network with init.path=FILE"),
        f"{BACKBONE}.pretrained2d": unneeded("vcycle inflates the weights of image networks"),
        f"{BACKBONE}.lateral": unneeded("one pathway"),
        f"{BACKBONE}.*.type": unneeded("the backbone names the model"),
        "model.cls_head.type": unneeded("vcycle's head is the same: average pooling, dropout, linear"),
        "model.cls_head.in_channels": unneeded("the network tells"),
        "model.cls_head.num_classes": unneeded("the data has the classes"),
        "model.cls_head.spatial_type": only("avg", why="vcycle averages over all positions"),
        "model.cls_head.dropout_ratio": _MODEL,
        "model.cls_head.init_std": only(0.01, why="vcycle initializes the classifier with a deviation of 0.01"),
        "model.cls_head.multi_class": to("training.multi_label", convert=bool),
        "model.cls_head.average_clips": only("prob", why="vcycle averages probabilities"),
        "model.cls_head.loss_cls.type": lambda value, source: (
            translated(training__multi_label=True)
            if value == "BCELossWithLogits"
            else only("CrossEntropyLoss", why="vcycle has cross-entropy, per video or per class")(value, source)
        ),
        "model.cls_head.label_smooth_eps": to("training.label_smoothing"),
        "model.test_cfg.average_clips": only("prob", why="vcycle averages probabilities"),
        "model.test_cfg.*": unneeded("vcycle takes as many views at a time as fit"),
        "model.test_cfg": only(None, why="vcycle evaluates on its own"),
        "model.train_cfg": only(None, why="vcycle has no options of the kind"),
        "model.data_preprocessor.mean": rules.normalisation("sampling.mean"),
        "model.data_preprocessor.std": rules.normalisation("sampling.std"),
        f"{_BLENDING}.alpha": pipeline.blending,
        f"{_BLENDING}.augments[MixupBlending].alpha": to("augment.mixup"),
        f"{_BLENDING}.augments[CutmixBlending].alpha": to("augment.cutmix"),
        f"{_BLENDING}*.type": unneeded("mixup and CutMix are set on their own"),
        f"{_BLENDING}*.num_classes": unneeded("the data has the classes"),
        f"{_BLENDING}.*": _AUGMENTATION,
        "model.data_preprocessor.*": _LOADS,
        "train_cfg": only(None, why="vcycle has no options of the kind"),
        "test_cfg.*": unneeded("`vcycle eval` tests a run"),
        "test_cfg": only(None, why="vcycle evaluates on its own"),
        "val_cfg.*": _EVALUATION,
        "val_cfg": _EVALUATION,
        # The run.
        "load_from": rules.pretrained,
        "resume_from": only(None, why="vcycle resumes its own runs"),
        "resume": only(False, why="vcycle resumes its own runs"),
        "seed": to("run.seed"),
        "randomness.seed": lambda value, source: (
            unneeded("a random seed") if value is None else translated(run__seed=value)
        ),
        "randomness.*": unneeded("vcycle's runs are deterministic on CPUs"),
        "evaluation.interval": rules.epochs("run.validate_every"),
        "evaluation.*": unneeded("vcycle measures top-1 and top-5, or mAP"),
        "evaluation": unneeded("vcycle measures top-1 and top-5, or mAP"),
        "checkpoint_config.*": unneeded("vcycle saves by steps: run.save_every"),
        "default_hooks.*": unneeded("vcycle logs, saves and validates on its own"),
        "custom_hooks*": differs("vcycle runs no hooks of MMEngine"),
        "log_config.*": unneeded("vcycle logs every step; run.loggers adds others"),
        "log_config[*": unneeded("vcycle logs every step; run.loggers adds others"),
        "log_level": unneeded("vcycle logs every step"),
        "log_processor.*": unneeded("vcycle logs every step"),
        "vis_backends*": unneeded("run.loggers=[tensorboard] logs to TensorBoard"),
        "visualizer*": unneeded("run.loggers=[tensorboard] logs to TensorBoard"),
        "default_scope": unneeded("vcycle has no registry of MMEngine"),
        "env_cfg*": unneeded("vcycle sets up processes on its own"),
        "dist_params.*": unneeded("torchrun sets it"),
        "workflow": unneeded("vcycle trains"),
        "find_unused_parameters": unneeded("vcycle knows which parameters are frozen"),
        "work_dir": unneeded("`vcycle train --out` names the folder"),
        "gpu_ids": unneeded("torchrun sets it"),
        "omnisource": only(False, why="vcycle trains on one dataset"),
        "fp16*": translated(run__precision="fp16"),
    },
)
"""Translates MMAction2's configurations."""
