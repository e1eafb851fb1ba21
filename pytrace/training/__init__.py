"""Training: a small model that writes the queries of a knowledge base, learned from questions whose queries are known."""
