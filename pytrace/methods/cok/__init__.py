"""Chain of Knowledge and fact checking."""
