"""Chain of Evidence: a question's features, judges of whether a text holds them, and the test whether it holds them all."""
