"""TRACE: chains of knowledge triples pick the evidence for a multi-hop question."""
