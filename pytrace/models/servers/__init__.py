"""Language models behind a server."""
