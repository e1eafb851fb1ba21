"""The resumable runner: serial, in processes, on Ray."""
