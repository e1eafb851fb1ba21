"""The tokenizer of a model from scratch: byte-level BPE in which a name has the same tokens wherever it stands.

What a generator must learn first is to copy names that it never saw. In common byte-level BPE a word has other tokens at the
beginning of a name, behind a slash, than in a sentence, behind a space; here the space before a word is a token by itself,
so that copying is the repetition of tokens. Only words that stand in many texts, those of the query language and the labels,
hold their space, and only they join punctuation.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from pytrace.errors import InputError
from pytrace.storage.files import replace_file

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
