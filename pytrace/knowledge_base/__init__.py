"""The knowledge base: triples of any knowledge graph, compiled so that facts, entities and paths are found at once."""

from pytrace.knowledge_base.base import KnowledgeBase
from pytrace.knowledge_base.columns import Columns, compile_triples
from pytrace.knowledge_base.entities import EntityIndex
from pytrace.knowledge_base.files import is_knowledge_base
from pytrace.knowledge_base.mentions import Mention, MentionIndex
from pytrace.knowledge_base.names import entity_name, normal_form, relation_name, verbalise
from pytrace.knowledge_base.paths import FoundPaths, find_paths, neighbourhood
from pytrace.knowledge_base.sources import Source, read_source

__all__ = [
    "Columns",
    "EntityIndex",
    "FoundPaths",
    "KnowledgeBase",
    "Mention",
    "MentionIndex",
    "Source",
    "compile_triples",
    "entity_name",
    "find_paths",
    "is_knowledge_base",
    "neighbourhood",
    "normal_form",
    "read_source",
    "relation_name",
    "verbalise",
]
