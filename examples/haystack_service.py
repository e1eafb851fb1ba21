"""A Haystack pipeline on the service (``pip install 'pytrace-rag[cpu,docs,serve,haystack]'``).

    pytrace index build runs/tamarrow.index --docs examples/docs
    pytrace serve --index runs/tamarrow.index
    python examples/haystack_service.py [http://127.0.0.1:8765] ["QUESTION"]

Haystack's own OpenAI generator asks the service, which searches its index across hops and answers with its sources; no code of pytrace runs in
the pipeline.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("HAYSTACK_TELEMETRY_ENABLED", "False")

from haystack import Pipeline
from haystack.components.builders import ChatPromptBuilder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.utils import Secret

QUESTION = "Who founded the company that owns the Marigold Tern?"


def main(url: str, question: str) -> None:
    """Ask the service a question through a pipeline."""
    pipeline = Pipeline()
    pipeline.add_component(
        "prompt", ChatPromptBuilder([ChatMessage.from_user("{{ question }}")], required_variables=["question"])
    )
    key = Secret.from_token(os.environ.get("PYTRACE_API_KEY", "none"))
    pipeline.add_component(
        "service", OpenAIChatGenerator(api_key=key, api_base_url=f"{url}/v1", model="pytrace/trace-doc")
    )
    pipeline.connect("prompt", "service")
    (reply,) = pipeline.run({"prompt": {"question": question}})["service"]["replies"]
    print(reply.text)
    print(f"{reply.meta['usage']['prompt_tokens']} tokens were read")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8765", sys.argv[2] if len(sys.argv) > 2 else QUESTION)
