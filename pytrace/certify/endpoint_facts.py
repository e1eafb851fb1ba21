"""The part of a graph on a server that responses speak of, brought here so that they can be certified against it."""

from __future__ import annotations

from collections.abc import Iterable

from pytrace.check_records import Response
from pytrace.documents import content_phrases, split_sentences
from pytrace.errors import InputError
from pytrace.kg import KnowledgeBase, entity_name
from pytrace.kg.fact_store import FactStore
from pytrace.kg.terms import named_by
from pytrace.models.encoders.encoder import Encoder

# Of a name that several entities have so many are looked at, and around each so many triples: a person on Wikidata has some 100.
_HOMONYMS, _TRIPLES = 3, 200
# A label has to be the phrase but for case and a letter or two.
_CUTOFF = 90.0


def base_of_endpoint(store: FactStore, encoder: Encoder, responses: Iterable[Response]) -> KnowledgeBase:
    """Make a knowledge base of the triples around the entities that responses and their questions name.

    Parameters
    ----------
    store
        The server, or any other store.
    encoder
        Makes the vectors of the triples.
    responses
        Their content phrases, gold answers and topics are looked up among the store's labels.

    Raises
    ------
    InputError
        None of them is an entity of the store.
    ServerError
        The server cannot be asked.
    """
    phrases: dict[str, None] = {}
    keys: dict[str, None] = {}
    for response in responses:
        keys |= dict.fromkeys(response.topics)
        phrases |= dict.fromkeys(response.answers)
        for sentence in split_sentences(f"{response.question}\n{response.text}"):
            phrases |= dict.fromkeys(phrase.text for phrase in content_phrases(sentence))
    for matches in store.find_entities(list(phrases), limit=_HOMONYMS, cutoff=_CUTOFF):
        keys |= dict.fromkeys(match.key for match in matches)
    found = {triple: None for triples in store.around(list(keys), limit=_TRIPLES) for triple in triples}
    if not found:
        raise InputError(
            f"{store.name} has no triple of anything that the responses name, for instance of "
            f"{', '.join(list(phrases)[:3]) or 'nothing at all'}; check that both are of one subject"
        )
    named = dict.fromkeys(key for triple in found for key in (triple.head, triple.tail, named_by(triple.relation)))
    names = {
        key: name
        for key, name in zip(named, store.names(list(named)), strict=True)
        if name not in (key, entity_name(key))
    }
    return KnowledgeBase.in_memory(found, encoder, names=names)
