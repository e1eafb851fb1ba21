"""Other frameworks' interfaces: LlamaIndex, LangChain, Haystack, and the shapes of rerankers (docs/integrations.md).

Each module imports its framework, and is imported by nothing else here.
"""
