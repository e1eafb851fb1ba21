"""Certificates of reasoning: is each step of a chain of thought a fact of a knowledge graph, and do the steps hang together?"""
