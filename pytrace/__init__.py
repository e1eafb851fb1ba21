"""pytrace finds the evidence for multi-hop questions and checks reasoning against facts, on your own machine."""

__version__ = "0.1.0"
