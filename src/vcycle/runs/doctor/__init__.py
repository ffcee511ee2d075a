"""What will hold a training back on this machine, and what to change: `vcycle doctor`."""

from vcycle.runs.doctor.examine import Examination, examine
from vcycle.runs.doctor.finding import Finding

__all__ = ["Examination", "Finding", "examine"]
