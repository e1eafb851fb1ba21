"""``pytrace mcp``: an index as tools of an assistant, over standard input and output."""

from __future__ import annotations

from pathlib import Path

from pytrace.cli.commands import Command
from pytrace.cli.serve import FACTS, INDEX, METHOD, make_service
from pytrace.cli.shared_options import MODELS
from pytrace.engine.loading import Engine
from pytrace.errors import MissingDependencyError


class Mcp(Command):
    """Serve an index to an assistant by the Model Context Protocol, over standard input and output.

    The tools are search_evidence, ask, certify, neighbours and list_documents, and passages are resources. 'pytrace serve' has
    the same at /mcp, for assistants that come over HTTP.
    """

    index: Path = INDEX
    method: str = METHOD
    facts: Path | None = FACTS
    models: Engine = MODELS

    def run(self) -> int:
        """Serve until the input ends."""
        try:
            from pytrace.serve.mcp_server import serve_streams
            from pytrace.serve.settings import ServeSettings
            from pytrace.serve.telemetry import make_log
        except ImportError as error:
            raise MissingDependencyError(
                f"{error.name} is needed to serve tools; install it with \"pip install 'pytrace-rag[serve]'\""
            ) from error
        make_log()
        service = make_service(
            self.models, self.index, ServeSettings(read_only=True), facts=self.facts, method=self.method
        )
        with service:
            serve_streams(service)
        return 0
