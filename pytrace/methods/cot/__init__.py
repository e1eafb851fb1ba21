"""Chain of thought: rationales, their vote, and the methods that verify or interleave them."""
