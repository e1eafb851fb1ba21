"""Data sets, metrics and the resumable runner."""
