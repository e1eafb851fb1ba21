"""The small model that reads, links and checks."""
