"""Choose a method's settings by measuring them: `pytrace tune`."""

from pytrace.methods.base import Choice, Option
from pytrace.tuning.search import Objective, Trial, Tuned, default_space, parse_choice, tune

__all__ = ["Choice", "Objective", "Option", "Trial", "Tuned", "default_space", "parse_choice", "tune"]
