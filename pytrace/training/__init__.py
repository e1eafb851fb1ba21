"""Training: models that write the queries of a knowledge base, and rankers that find the next passage of a chain."""
