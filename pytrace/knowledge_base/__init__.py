"""The knowledge base: triples of any knowledge graph, compiled so that facts, entities and paths are found at once."""

from pytrace.knowledge_base.base import KnowledgeBase
from pytrace.knowledge_base.columns import Columns, compile_triples
from pytrace.knowledge_base.mentions import Mention, MentionIndex
from pytrace.knowledge_base.names import entity_name, normal_form, relation_name, verbalise

__all__ = [
    "Columns",
    "KnowledgeBase",
    "Mention",
    "MentionIndex",
    "compile_triples",
    "entity_name",
    "normal_form",
    "relation_name",
    "verbalise",
]
