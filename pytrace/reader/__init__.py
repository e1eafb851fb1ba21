"""The reader: evidence to answer, and the prompts."""
