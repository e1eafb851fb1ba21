"""Readers: JSON Lines, question data sets, text and Markdown files and folders of them, all to `Document` records."""

from pytrace.documents.chunks import DocumentChunk, split_document
from pytrace.documents.phrases import Phrase, content_phrases, is_pronoun, sentence_subject
from pytrace.documents.read_report import ReadReport, Skipped
from pytrace.documents.reader import read_documents
from pytrace.documents.sentences import clean_text, split_sentences

__all__ = [
    "DocumentChunk",
    "Phrase",
    "ReadReport",
    "Skipped",
    "clean_text",
    "content_phrases",
    "is_pronoun",
    "read_documents",
    "sentence_subject",
    "split_document",
    "split_sentences",
]
