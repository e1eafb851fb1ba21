"""Readers of foreign formats, one a module, each from a path to `Extracted`; they run in a process of their own (`worker`)."""
