"""Encoders of texts: an ONNX model with its tokenizer, as Hugging Face exports it.

A folder has ``model.onnx``, or ``onnx/model.onnx``, and ``tokenizer.json``. The model takes ``input_ids``,
``attention_mask`` and maybe ``token_type_ids``, and gives a row for each token, which are pooled, or one for the text.
How that is done, the files beside it say: ``1_Pooling/config.json``, ``modules.json``, ``sentence_bert_config.json``,
``tokenizer_config.json`` and ``config.json``. What they do not say is taken as in most encoders of sentences: the mean
over tokens, brought to length 1.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from gphash.data.descriptors import networks
from gphash.data.descriptors.descriptor import TEXTS, Descriptor
from gphash.data.descriptors.networks import EncodingError, Network, Words
from gphash.files import DataError

POOLINGS = ("mean", "cls", "max", "last")
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
LIKED = ("sentence_embedding", "text_embeds", "last_hidden_state", "token_embeddings")
MOST_TOKENS = 8192
USUAL_TOKENS = 512  # where no file says how many the model takes
SETTINGS = ("pooling", "normalised", "tokens", "output")

_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last",
}
_MODULES = ("Transformer", "Pooling", "Normalize")  # the last parts of names of classes


@dataclass(frozen=True)
class TextEncoder(Descriptor):
    """Rows of texts by a network; a text without tokens is a row of zeros.

    model, tokenizer
        Hexadecimal SHA-256 of the two files.
    output, pooling, normalised, tokens
        The network's output; how rows of tokens become one; whether that is brought to length 1; and after how many
        tokens a text is cut.
    width
        Length of a row.
    model_path, tokenizer_path
        Where the files were; a file there with another SHA-256 is not used.
    """

    takes: ClassVar[str] = TEXTS
    page: ClassVar[int] = 64
    model: str
    tokenizer: str
    output: str
    pooling: str
    normalised: bool
    tokens: int
    width: int
    model_path: str = field(default="", compare=False)
    tokenizer_path: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        check_fields(self, ("model", "tokenizer", "output", "pooling", "model_path", "tokenizer_path"), self.width)
        if self.pooling not in POOLINGS:
            raise ValueError(f"pooling={self.pooling!r}; give one of {', '.join(POOLINGS)}.")
        if type(self.normalised) is not bool:
            raise ValueError(f"normalised={self.normalised!r}; give True or False.")
        if type(self.tokens) is not int or not 1 <= self.tokens <= MOST_TOKENS:
            raise ValueError(f"tokens={self.tokens!r}; give a whole number from 1 to {MOST_TOKENS}.")

    @classmethod
    def fit(cls, images: Any, n_jobs: int | None = -1, **options: Any) -> Self:
        """An encoder is not learned."""
        raise ValueError("descriptor='text-encoder'; give the path of its ONNX model, or of the folder that it is in.")

    @classmethod
    def open(cls, model: Path, folder: Path, **settings: Any) -> Self:
        """The encoder of a model's file, with a folder of its tokenizer and settings; `SETTINGS` go before these."""
        told = _told(folder) | settings
        tokenizer = folder / "tokenizer.json"
        digests = networks.digest_of(model), networks.digest_of(tokenizer)
        network = networks.network(digests[0], str(model))
        words = networks.words(digests[1], str(tokenizer))
        port = network.output(told.get("output"), LIKED)
        _check_inputs(network)
        limits = [told["tokens"]] if "tokens" in settings else [told.get("tokens"), words.own_limit]
        tokens = min((int(one) for one in limits if one is not None), default=USUAL_TOKENS)
        own: dict[str, Any] = {"model": digests[0], "tokenizer": digests[1], "tokens": tokens, "width": 1}
        own |= {"output": port.name, "pooling": told.get("pooling", "mean"), "normalised": told.get("normalised", True)}
        draft = cls(**own, model_path=str(model.absolute()), tokenizer_path=str(tokenizer.absolute()))
        return replace(draft, width=_width(draft, network, words))

    @property
    def n_features(self) -> int:
        """Length of a row."""
        return self.width

    def is_at_hand(self) -> bool:
        """Whether its files are there."""
        pairs = ((self.model, self.model_path), (self.tokenizer, self.tokenizer_path))
        return all(networks.is_there(*pair) for pair in pairs)

    def describe(self, pixels: Any) -> NDArray[np.float32]:
        """One text as a row."""
        if not isinstance(pixels, str) or not pixels.strip():
            raise ValueError(f"text={pixels!r}; give a text that is not empty.")
        network = networks.network(self.model, self.model_path)
        ids, kinds = networks.words(self.tokenizer, self.tokenizer_path).tokens(pixels, self.tokens)
        # A tokenizer may know nothing of a text, and add nothing to it.
        row = _pooled(self, network, ids, kinds) if ids else np.zeros(self.width, np.float32)
        if row.shape != (self.width,) or not np.isfinite(row).all():
            needed = f"{self.width} finite numbers are needed"
            raise EncodingError(f"{network.label} gives a row of shape {row.shape}; {needed}")
        return row

    def __str__(self) -> str:
        return f"texts by the encoder {Path(self.model_path).name or 'model'} ({self.model[:12]}…)"


def check_fields(descriptor: Any, names: tuple[str, ...], width: Any) -> None:
    """Refuse parameters of an encoder that a file may have, and that cannot be."""
    for name in names:
        if not isinstance(value := getattr(descriptor, name), str) or "\0" in value:
            raise ValueError(f"{name}={value!r}; give a text.")
    for name in ("model", "tokenizer"):
        digest = getattr(descriptor, name, "0" * 64)
        if len(digest) != 64 or set(digest) - set("0123456789abcdef"):
            raise ValueError(f"{name}={digest!r}; give a hexadecimal SHA-256.")
    if type(width) is not int or not 1 <= width <= 1 << 20:
        raise ValueError(f"width={width!r}; give a whole number from 1 to {1 << 20}.")


def _told(folder: Path) -> dict[str, Any]:
    """What the files of a folder say of pooling, length and tokens."""
    found: dict[str, Any] = {}
    if (modules := networks.settings_in(folder / "modules.json")) is not None:
        kinds = [str(one.get("type", "")).rpartition(".")[2] for one in modules.get("", ()) if isinstance(one, dict)]
        if odd := [kind for kind in kinds if kind not in _MODULES]:
            raise DataError(
                f"{str(folder / 'modules.json')!r} has the module {odd[0]!r}, which is not in the ONNX model; export "
                "the encoder as one model"
            )
        found["normalised"] = "Normalize" in kinds
    if (pooling := networks.settings_in(folder / "1_Pooling" / "config.json")) is not None:
        modes = [name for name, value in pooling.items() if name.startswith("pooling_mode") and value is True]
        if len(modes) != 1 or modes[0] not in _MODES:
            raise DataError(f"{str(folder / '1_Pooling')!r} has the modes {modes}; one of {list(_MODES)} is needed")
        found["pooling"] = _MODES[modes[0]]
    lengths = []
    for file, name in (
        ("sentence_bert_config.json", "max_seq_length"),
        ("tokenizer_config.json", "model_max_length"),
        ("config.json", "max_position_embeddings"),
    ):
        told = (networks.settings_in(folder / file) or {}).get(name)
        if isinstance(told, int | float) and 1 <= told <= MOST_TOKENS:
            lengths.append(int(told))
    return found | ({"tokens": min(lengths)} if lengths else {})


def _check_inputs(network: Network) -> None:
    names = [port.name for port in network.inputs]
    if not {"input_ids", "attention_mask"} <= set(names) or set(names) - set(INPUTS):
        raise DataError(
            f"{network.label} has the inputs {', '.join(names)}; an encoder of texts has input_ids, attention_mask and "
            "maybe token_type_ids"
        )


def _width(encoder: TextEncoder, network: Network, words: Words) -> int:
    """Length of a row, from the last token that there is, as often as a text may have it: a tokenizer must fit.

    Time and memory may grow with the square of the tokens, so that more than usual are not tried.
    """
    tried = min(encoder.tokens, USUAL_TOKENS)
    try:
        row = _pooled(encoder, network, [words.last_id] * tried, [0] * tried)
    except DataError as error:
        raise DataError(
            f"{error} (given {tried} tokens, and the tokenizer's last, {words.last_id}: does the tokenizer "
            "belong to the model, and does it take so many tokens?)"
        ) from error
    if row.ndim != 1:
        raise DataError(f"{network.label}: the output {encoder.output!r} is neither [1, n] nor [1, tokens, n]")
    return len(row)


def _pooled(encoder: TextEncoder, network: Network, ids: list[int], kinds: list[int]) -> NDArray[np.float32]:
    """The row of a text by its tokens."""
    given: dict[str, list[int]] = {"input_ids": ids, "attention_mask": [1] * len(ids), "token_type_ids": kinds}
    feed = {}
    for port in network.inputs:
        fixed = port.shape[1] if len(port.shape) == 2 else 0
        numbers = np.zeros((1, fixed or len(ids)), port.kind)
        numbers[0, : len(ids)] = given[port.name][: numbers.shape[1]]
        feed[port.name] = numbers
    found = network.run(encoder.output, feed)[0].astype(np.float64)
    if found.ndim == 2:
        found = found[: len(ids)]  # without the rest of a fixed length
        found = {
            "mean": lambda: found.mean(axis=0),
            "max": lambda: found.max(axis=0),
            "cls": lambda: found[0],
            "last": lambda: found[-1],
        }[encoder.pooling]()
    if encoder.normalised:
        found = found / max(float(np.linalg.norm(found)), 1e-12)
    return np.asarray(found, dtype=np.float32)
