"""The texts that a query generator learns from, the tokens of its own tokenizer, and the batches that these are learned in.

Source: Chain of Knowledge, section 4.3: a question, its correct query and perhaps wrong ones are modelled in one sequence, and
only the tokens of queries are learned (equation 1).

What a generator must learn first is to copy names that it never saw. In common byte-level BPE a word has other tokens at the
beginning of a name, behind a slash, than in a sentence, behind a space; in the tokenizer of a model from scratch the space
before a word is a token by itself, so that copying is the repetition of tokens. Only words that stand in many texts, those of
the query language and the labels, hold their space, and only they join punctuation.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from pytrace.errors import InputError
from pytrace.kg.queries import write_query
from pytrace.kg.queries.trained import question_prompt, wrong_label
from pytrace.storage.files import replace_file
from pytrace.training.examples import QueryExample
from pytrace.training.wrong_queries import WrongQuery

END = "<|endoftext|>"
"""The control token that ends a text; no text is ever read as it."""

_BYTES = 256
# A word of the frame stands in at least this share of the texts; hardly any name does.
_FRAME_SHARE = 0.1
# So many texts tell the frame, evenly spaced.
_FRAME_TEXTS = 2_000


class TextTokenizer:
    """What training asks of any tokenizer: `encode`, the token that ends a text, and the one that begins it, if there is one."""

    def __init__(self, encode: Callable[[str], list[int]], *, end: int, begin: int | None = None) -> None:
        self.encode = encode
        self.end = end
        self.begin = begin


class ByteTokenizer(TextTokenizer):
    """Byte-level BPE of the tokenizers package."""

    # Radford et al., "Language Models are Unsupervised Multitask Learners" (2019), section 2.2.

    def __init__(self, tokenizer: Tokenizer, *, end: int) -> None:
        self._tokenizer = tokenizer

        def encode(text: str) -> list[int]:
            # Half of a surrogate pair is read as a question mark, as the engine does.
            plain = text.encode("utf-8", "replace").decode("utf-8")
            return list(tokenizer.encode(plain, add_special_tokens=False).ids)

        super().__init__(encode, end=end)

    @property
    def description(self) -> dict[str, Any]:
        """The tokenizer as `tokenizer.json` has it."""
        description = json.loads(self._tokenizer.to_str())
        assert isinstance(description, dict)
        return description

    @property
    def size(self) -> int:
        """How many tokens there are."""
        return int(self._tokenizer.get_vocab_size())

    @property
    def tokens(self) -> list[str]:
        """All tokens by id, each byte written as one letter."""
        return [str(self._tokenizer.id_to_token(token)) for token in range(self.size)]

    @property
    def merges(self) -> list[str]:
        """The merges by rank, their two parts with a space between."""
        return [" ".join(pair) for pair in self.description["model"]["merges"]]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=False))

    def save(self, path: Path) -> None:
        """Write the tokenizer in one step, as `tokenizer.json` of the tokenizers package."""
        replace_file(path, self._tokenizer.to_str(pretty=True).encode())


def train_tokenizer(texts: Iterable[str], *, size: int) -> ByteTokenizer:
    """Learn a tokenizer from texts."""
    # A text twice says nothing new, and the frame is found by counting texts.
    known = list(dict.fromkeys(text.encode("utf-8", "replace").decode("utf-8") for text in texts if text.strip()))
    if not known:
        raise InputError("there is no text to learn a tokenizer from; give at least one question")
    frame = _frame(known)
    learner = Tokenizer(models.BPE())
    # Letters join letters only: neither spaces nor digits nor punctuation ever stick to a name.
    learner.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"[^\p{L}]"), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=max(size - 2 * len(frame), _BYTES + 1),
        min_frequency=2,
        special_tokens=[END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    learner.train_from_iterator(known, trainer)
    model = json.loads(learner.to_str())["model"]
    vocabulary: dict[str, int] = model["vocab"]
    merges = [(first, second) for first, second in model["merges"]]
    for word in frame:
        if len(vocabulary) >= size:
            break
        _join(word, vocabulary, merges, size)
    # END is a plain entry that no merge makes: a question that spells it out must not end a text.
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = _splitter()
    tokenizer.decoder = decoders.ByteLevel()
    return ByteTokenizer(tokenizer, end=vocabulary[END])


def _frame(texts: Sequence[str]) -> list[str]:
    """Return the words, spaces and punctuation included, that stand in many texts, the most frequent first."""
    split = _splitter()
    sample = texts[:: max(len(texts) // _FRAME_TEXTS, 1)]
    counts: Counter[str] = Counter()
    for text in sample:
        counts.update({word for word, _ in split.pre_tokenize_str(text)})
    least = max(_FRAME_SHARE * len(sample), 2)
    frequent = sorted((-count, word) for word, count in counts.items() if count >= least and len(word) > 1)
    # The number of a wrong query stands everywhere, and may begin a name too.
    return [word for _, word in frequent if not any(map(str.isdigit, word))]


def _join(word: str, vocabulary: dict[str, int], merges: list[tuple[str, str]], size: int) -> None:
    """Add the merges that make one token of a word, from its end on: a space joins last, so that it joins nothing else."""
    pieces = [token.value for token in models.BPE(vocab=vocabulary, merges=merges).tokenize(word)]
    while len(pieces) > 1 and len(vocabulary) < size:
        pair = (pieces[-2], pieces[-1])
        merges.append(pair)
        vocabulary.setdefault("".join(pair), len(vocabulary))
        pieces[-2:] = ["".join(pair)]


def _splitter() -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


# Sequences of a batch have about the same length; this share of it at random keeps the same ones from meeting every time.
_JITTER = 0.3


class Piece(msgspec.Struct, frozen=True):
    """A part of a training text, and whether its tokens are learned: those of queries are, those of all else are not."""

    text: str
    learned: bool


class TrainingText(msgspec.Struct, frozen=True):
    """One sequence: a question, its correct query and perhaps wrong ones."""

    pieces: tuple[Piece, ...]

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(piece.text for piece in self.pieces)


class EncodedText(msgspec.Struct, frozen=True):
    """A training text as tokens: `tokens` int32 (n,), and `learned` bool (n,), true for those that the loss counts."""

    tokens: NDArray[np.int32]
    learned: NDArray[np.bool_]


class EncodedTexts(msgspec.Struct, frozen=True):
    """Texts that fit the context, and how many were left out because they do not."""

    texts: tuple[EncodedText, ...]
    too_long: int

    @property
    def tokens(self) -> int:
        """All tokens together."""
        return sum(len(text.tokens) for text in self.texts)

    @property
    def learned(self) -> int:
        """The tokens that the loss counts."""
        return sum(int(text.learned.sum()) for text in self.texts)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of all tokens in order and of which are learned, in hexadecimal."""
        digest = hashlib.sha256()
        for text in self.texts:
            # With the lengths, so that texts which are cut elsewhere differ.
            digest.update(len(text.tokens).to_bytes(8, "little"))
            digest.update(text.tokens.tobytes())
            digest.update(text.learned.tobytes())
        return digest.hexdigest()


def training_text(example: QueryExample, wrong: Sequence[WrongQuery] = ()) -> TrainingText:
    """Write an example as one sequence."""
    # Chain of Knowledge, section 4.3 and appendix A.1.1.
    pieces = [Piece(question_prompt(example.question), learned=False), _learned(write_query(example.query))]
    for number, query in enumerate(wrong, 1):
        pieces += [Piece(wrong_label(number), learned=False), _learned(query.text)]
    return TrainingText(tuple(pieces))


def _learned(query: str) -> Piece:
    # A line break would end the query for whoever generates.
    return Piece(f" {' '.join(query.split())}\n", learned=True)


def encode_texts(texts: Iterable[TrainingText], tokenizer: TextTokenizer, *, context: int) -> EncodedTexts:
    """Turn training texts into tokens."""
    # Each piece is encoded by itself, so that a token never belongs to two, and the first piece becomes the tokens of
    # the prompt that the trained model will be given. A token that ends the text is learned after it.
    encoded, too_long, most = [], 0, 0
    prefix = [] if tokenizer.begin is None else [tokenizer.begin]
    for text in texts:
        tokens, learned = list(prefix), [False] * len(prefix)
        for piece in text.pieces:
            new = tokenizer.encode(piece.text)
            tokens += new
            learned += [piece.learned] * len(new)
        tokens.append(tokenizer.end)
        learned.append(True)
        most = max(most, len(tokens))
        if len(tokens) > context:
            too_long += 1
            continue
        encoded.append(EncodedText(np.array(tokens, np.int32), np.array(learned, np.bool_)))
    if not encoded:
        raise InputError(
            f"all {too_long} training texts are longer than the context of {context} tokens (the longest has {most}); "
            "make it larger"
            if too_long
            else "there is no training text; give at least one question with its query"
        )
    return EncodedTexts(tuple(encoded), too_long)


def first_query(text: EncodedText) -> EncodedText:
    """Return a text that ends with its first query: all of it where it has one alone."""
    first = int(text.learned.argmax())
    following = np.flatnonzero(~text.learned[first:])
    if not len(following):
        return text
    cut = first + int(following[0])
    # The last token is the one that ends a text.
    return EncodedText(np.append(text.tokens[:cut], text.tokens[-1]), np.append(text.learned[:cut], True))


def batches(texts: Sequence[EncodedText], *, tokens: int, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """Deal texts into batches of about the same length, in an order of their own for each pass."""
    # By seed and pass alone: a resumed training deals the batches that the killed one would have.
    random = np.random.default_rng([seed, epoch])
    lengths = np.array([len(text.tokens) for text in texts])
    order = np.argsort(lengths * (1 + _JITTER * random.random(len(lengths))), kind="stable")
    dealt: list[NDArray[np.int64]] = []
    first, longest = 0, 0
    for position, index in enumerate(order):
        length = int(lengths[index])
        # Padding counts: a batch takes as many tokens as its longest text in every row.
        if position > first and max(longest, length) * (position + 1 - first) > tokens:
            dealt.append(order[first:position])
            first, longest = position, 0
        longest = max(longest, length)
    if len(order):
        dealt.append(order[first:])
    return [dealt[number] for number in random.permutation(len(dealt))]


def endless(texts: Sequence[EncodedText], *, tokens: int, seed: int, skipped: int) -> Iterator[NDArray[np.int64]]:
    """Yield the batches of one pass after the other without end, but for the first `skipped` ones."""
    epoch = 0
    while True:
        dealt = batches(texts, tokens=tokens, seed=seed, epoch=epoch)
        yield from dealt[skipped:]
        skipped = max(skipped - len(dealt), 0)
        epoch += 1


def padded(texts: Sequence[EncodedText]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the inputs side by side, int64 (texts, width), and where in them, flattened, a learned token follows, and which."""
    # Padding follows a text, where no token of it can look, so that no mask is needed.
    width = max(len(text.tokens) for text in texts) - 1
    tokens = np.zeros((len(texts), width), np.int64)
    offsets, targets = [], []
    for row, text in enumerate(texts):
        tokens[row, : len(text.tokens) - 1] = text.tokens[:-1]
        learned = np.flatnonzero(text.learned[1:])
        offsets.append(row * width + learned)
        targets.append(text.tokens[1:][learned])
    return tokens, np.concatenate(offsets), np.concatenate(targets).astype(np.int64)
