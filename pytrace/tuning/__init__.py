"""Choose a method's settings by measuring them: `pytrace tune`."""

from pytrace.tuning.search import Objective, Trial, Tuned, tune
from pytrace.tuning.spaces import Choice, Option, default_space, parse_choice

__all__ = ["Choice", "Objective", "Option", "Trial", "Tuned", "default_space", "parse_choice", "tune"]
