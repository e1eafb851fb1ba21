"""The in-process engine on llama.cpp."""
