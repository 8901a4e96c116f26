"""Networks in the ONNX format and their tokenizers: read within limits, checked, and run (the extra ``onnx``).

A network is one file, known by its SHA-256. It is loaded when it is first used and kept for the whole process, so what
a model or a collection remembers of an encoder is light. Networks are run for one picture or text at a time, each by
one thread: a row depends on nothing but what it describes, also with networks whose numbers are rounded by the range
of a batch. Batches would be up to 1.4 times as quick for short texts, and no quicker for long ones.
"""

import hashlib
import json
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from gphash.files import DataError

T = TypeVar("T")

MOST_BYTES = (1 << 31) - 1  # of a file in this format
MOST_SIDE_BYTES = 1 << 28  # of a tokenizer or a file of settings
NUMBERS = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(uint8)": np.uint8,
}

_loaded: dict[tuple[type, str], Any] = {}  # networks and tokenizers by their digests
_places: dict[str, Path] = {}  # where files of these digests were last seen
_loading = threading.RLock()


class MissingEncoderError(ValueError):
    """The file of an encoder is not where it was, or is another one."""


class EncodingError(DataError):
    """An encoder fails on a text or a picture; the message names its file."""


class Port(NamedTuple):
    """An input or output of a network: name, type of its numbers, if it has any, and shape; 0 is any length."""

    name: str
    kind: Any
    shape: tuple[int, ...]


class Network:
    """A network that is ready to run; `label` is what errors call it."""

    def __init__(self, content: bytes, label: str) -> None:
        runtime = onnxruntime()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4  # what is wrong is raised
        # The file is all there is: weights elsewhere have no checksum.
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", os.devnull)
        try:
            self._session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        # The errors of this library have no class in common.
        except Exception as error:
            raise DataError(f"{label} is not an ONNX model that can be run: {_reason(error)}") from error
        self.label = label
        self.inputs = [_port(one) for one in self._session.get_inputs()]
        self.outputs = [_port(one) for one in self._session.get_outputs()]
        for port in self.inputs:
            if port.kind is None:
                raise DataError(f"{label}: the input {port.name!r} is not an array of numbers")

    def run(self, output: str, feed: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        """One output for some inputs."""
        try:
            found = self._session.run([output], dict(feed))[0]
        except Exception as error:
            raise EncodingError(f"{self.label} fails: {_reason(error)}") from error
        if not isinstance(found, np.ndarray) or found.dtype.kind != "f":
            raise EncodingError(f"{self.label}: the output {output!r} is not an array of floating-point numbers")
        return found

    def output(self, wanted: str | None, liked: Sequence[str]) -> Port:
        """The output of a name; if none is given, the first there is of those that are liked, or the first of all."""
        named = {port.name: port for port in self.outputs}
        if wanted is not None and wanted not in named:
            raise ValueError(f"output={wanted!r}; {self.label} has {', '.join(map(repr, named))}.")
        chosen = [name for name in liked if name in named]
        return named[wanted] if wanted is not None else named[chosen[0]] if chosen else self.outputs[0]


class Words:
    """A tokenizer that is ready to run, cut at so many tokens."""

    def __init__(self, content: bytes, label: str) -> None:
        kind = tokenizers().Tokenizer
        try:
            self._tokenizer = kind.from_str(content.decode("utf-8"))
        except Exception as error:
            raise DataError(f"{label} is not a tokenizer: {_reason(error)}") from error
        self.label = label
        cut: dict[str, Any] = self._tokenizer.truncation or {}
        self.own_limit: int | None = cut.get("max_length")
        self.last_id = max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        if self.last_id < 0:
            raise DataError(f"{label} is a tokenizer without tokens")
        self.n_special = self._tokenizer.num_special_tokens_to_add(False)

    def tokens(self, text: str, most: int) -> tuple[list[int], list[int]]:
        """Numbers of the tokens of a text, and the kind of each."""
        try:
            found = self._tokenizer.encode(text, add_special_tokens=False)
            found.truncate(max(1, most - self.n_special))
            whole = self._tokenizer.post_process(found) if self.n_special else found
        # Its errors are plain exceptions.
        except Exception as error:
            what = f"{self.label} cannot cut the text {text[:40]!r} into tokens"
            raise EncodingError(f"{what}: {_reason(error)}") from error
        return whole.ids[:most], whole.type_ids[:most]


def digest_of(path: Path) -> str:
    """Hexadecimal SHA-256 of a file; where it lies is remembered for `network` and `words`."""
    content_digest = hashlib.sha256(_content(path, MOST_BYTES)).hexdigest()
    _places[content_digest] = path
    return content_digest


def network(digest: str, hint: str) -> Network:
    """The network of a digest, which lies where it was last seen, or at the hint."""
    return _one(Network, digest, hint, MOST_BYTES)


def words(digest: str, hint: str) -> Words:
    """The tokenizer of a digest, likewise."""
    return _one(Words, digest, hint, MOST_SIDE_BYTES)


def is_there(digest: str, hint: str) -> bool:
    """Whether `network` or `words` would find a file; its content is checked only when it is read."""
    return any(path.is_file() for path in _candidates(digest, hint))


def settings_in(path: Path) -> dict[str, Any] | None:
    """What a JSON file says, if there is one."""
    if not path.is_file():
        return None
    try:
        found = json.loads(_content(path, MOST_SIDE_BYTES))
    except ValueError as error:
        raise DataError(f"{str(path)!r} is not JSON: {error}") from error
    return found if isinstance(found, dict) else {"": found}


def _one(kind: type[T], digest: str, hint: str, most: int) -> T:
    with _loading:
        if (kind, digest) not in _loaded:
            _loaded[kind, digest] = _load(kind, digest, hint, most)
        found: T = _loaded[kind, digest]
        return found


def _load(kind: Any, digest: str, hint: str, most: int) -> Any:
    others = [f"there is no file {hint!r}"]
    for path in _candidates(digest, hint):
        if path.is_file():
            content = _content(path, most)
            if (own := hashlib.sha256(content).hexdigest()) == digest:
                return kind(content, repr(str(path)))
            others.append(f"{str(path)!r} has {own}")
    raise MissingEncoderError(
        f"the encoder is the file with SHA-256 {digest}, and {others[-1]}; give its place: encoder=PATH "
        "(docs/questions.md#another-encoder)."
    )


def _candidates(digest: str, hint: str) -> list[Path]:
    known = [_places[digest]] if digest in _places else []
    return known + ([Path(hint)] if hint and "\0" not in hint else [])


def _content(path: Path, most: int) -> bytes:
    """A file as a whole, if it is one and memory can hold it."""
    if not path.is_file():
        raise FileNotFoundError(f"descriptor={str(path)!r}: there is no such file.")
    size, room = path.stat().st_size, _memory()
    if size > most:
        raise DataError(f"{str(path)!r} has {size} bytes; there may be at most {most}")
    if 2 * size > room:  # the file, and the network made of it
        raise DataError(
            f"{str(path)!r} has {size} bytes, and {room} bytes of memory are free; twice the file is needed"
        )
    return path.read_bytes()


def _memory() -> int:
    """Bytes of memory that are free, where that can be known."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        pass
    return 1 << 62


def _port(told: Any) -> Port:
    shape = tuple(size if isinstance(size, int) else 0 for size in told.shape or ())
    return Port(told.name, NUMBERS.get(told.type), shape)


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else f"{text[:300]}…"


def onnxruntime() -> Any:
    """What runs networks, which not everybody has."""
    try:
        import onnxruntime as runtime
    except ImportError as error:
        raise ImportError("ONNX models need ONNX Runtime: pip install 'gphash[onnx]'") from error
    return runtime


def tokenizers() -> Any:
    """What cuts texts into tokens, which not everybody has."""
    try:
        import tokenizers as library
    except ImportError as error:
        raise ImportError("encoders of text need tokenizers: pip install 'gphash[onnx]'") from error
    return library
