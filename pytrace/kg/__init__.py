"""The knowledge base: triples of any knowledge graph, compiled so that facts, entities and paths are found at once."""

from pytrace.kg.columns import Columns, compile_triples
from pytrace.kg.entities import EntityIndex
from pytrace.kg.graph_sources import Source, read_source
from pytrace.kg.knowledge_base import KnowledgeBase
from pytrace.kg.knowledge_base_files import is_knowledge_base
from pytrace.kg.mention_index import Mention, MentionIndex
from pytrace.kg.names import entity_name, normal_form, relation_name, verbalise
from pytrace.kg.paths import FoundPaths, find_paths, neighbourhood

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
