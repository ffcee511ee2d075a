"""What a task is: the `Task` interface, which training, evaluation, comparison and export use.

A task is one object in one folder. The flow of `train`, `eval`, `compare`, `bench` and `export` is the same for every
task: `vcycle.runs`, `vcycle.bench` and `vcycle.cli` know no task by name. This package imports no torch, so that
planning starts fast.
"""

from vcycle.tasks.base.commands import CheckOptions, Demo, PrepareOptions, Preparer
from vcycle.tasks.base.evaluation import Evaluator, Measure, Scope
from vcycle.tasks.base.part import Progress
from vcycle.tasks.base.registry import measures, register_layout, register_plan, register_task, tasks
from vcycle.tasks.base.splits import SPLITS, Found, Split, Splits
from vcycle.tasks.base.task import Task

__all__ = [
    "SPLITS",
    "CheckOptions",
    "Demo",
    "Evaluator",
    "Found",
    "Measure",
    "PrepareOptions",
    "Preparer",
    "Progress",
    "Scope",
    "Split",
    "Splits",
    "Task",
    "measures",
    "register_layout",
    "register_plan",
    "register_task",
    "tasks",
]
