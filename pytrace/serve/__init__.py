"""The service: an engine and an index kept warm, for many who ask at once over HTTP or MCP."""
