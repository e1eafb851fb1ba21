"""Answers that stand in the evidence: stretches of it as candidates, and which of them is the answer."""
