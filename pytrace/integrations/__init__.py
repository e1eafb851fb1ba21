"""Other frameworks' interfaces: LlamaIndex, LangChain, Haystack and others, and checks for pytest, DeepEval and RAGAS (docs/integrations.md).

Each module imports its framework, and is imported by nothing else here.
"""
