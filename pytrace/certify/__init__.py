"""Certificates of reasoning: whether each step is a fact of a knowledge graph, and whether the steps lead to the answer.

The paper of this room is "Direct Evaluation of Chain-of-Thought in Multi-hop Reasoning with Knowledge Graphs".
"""
