"""The attack: hostile files, options, servers, streams, signals and damage, and who survives them (SECURITY.md)."""
