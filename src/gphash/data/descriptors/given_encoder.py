"""Encoders that live in a Python program: any function, or anything with a method `encode`.

Such an object cannot be kept in a file, and has no checksum. What is kept is what it makes of a few texts, or of a few
pictures: an encoder that is handed in later must make the same of each. `hand_in` is how a process gets to know one.
Its rows are not kept in the cache, which another object that is alike on these few would share.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from gphash.data.descriptors.descriptor import PICTURES, TEXTS, Descriptor
from gphash.data.descriptors.networks import MissingEncoderError

PROBE_TEXTS = (
    "What does the encoder make of this sentence?",
    "The bank lends money to a man with a cat and a dog, and the price of coffee rose by 12.5 % in 2019.",
    "Physics, medicine, football, music, law: good news and bad news from all over the world!",
    "Der schnelle braune Fuchs springt über den faulen Hund; où est la bibliothèque?",
    "def f(x): return x**2 + 1",
    "a",
)
_RAMP = np.arange(64 * 64 * 3, dtype=np.uint32).reshape(64, 64, 3)
PROBE_PICTURES = tuple(one.astype(np.uint8) for one in (_RAMP, _RAMP // 48, _RAMP**2 // 7, _RAMP % 3 * 100))
LIKE = 0.999  # the least cosine of two rows of one encoder, on other machines, too
BATCH = 256

_handed_in: dict[str, Callable[[list[Any]], Any]] = {}  # encoders of this process, by the digests of probes


@dataclass(frozen=True, eq=False)
class GivenEncoder(Descriptor):
    """Rows of texts or pictures by an object of this program.

    subject
        `TEXTS` or `PICTURES`.
    called
        What the object is called.
    probe
        What it makes of `PROBE_TEXTS` or `PROBE_PICTURES`, float32 [p, d].
    """

    is_kept: ClassVar[bool] = False
    subject: str
    called: str = field(compare=False)
    probe: NDArray[np.float32]

    def __post_init__(self) -> None:
        probe: Any = self.probe
        if self.subject not in (TEXTS, PICTURES) or not isinstance(self.called, str):
            raise ValueError(
                f"subject={self.subject!r}, called={self.called!r}; give 'texts' or 'pictures', and a name."
            )
        sound = isinstance(probe, np.ndarray) and probe.dtype == np.float32 and probe.ndim == 2 and probe.size
        if not sound or not np.isfinite(probe).all():
            raise ValueError("probe must be rows of finite numbers, float32 [p, d].")
        if not probe.any():
            raise ValueError(
                f"encoder {self.called} gave nothing but zeros for each of {len(probe)} {self.subject} to try it on, "
                "so it cannot be told from others; give one that makes something of any of them."
            )

    @classmethod
    def fit(cls, images: Any, n_jobs: int | None = -1, **options: Any) -> Self:
        """An encoder is not learned."""
        raise ValueError("descriptor='given-encoder'; give the function, or the object that has encode.")

    @property
    def takes(self) -> str:  # type: ignore[override]
        """What it describes."""
        return self.subject

    @property
    def n_features(self) -> int:
        """Length of a row."""
        return int(self.probe.shape[1])

    @property
    def mark(self) -> str:
        """Digest of the probe."""
        return hashlib.sha256(self.subject.encode() + self.probe.tobytes()).hexdigest()

    def is_at_hand(self) -> bool:
        """Whether the object was handed in."""
        return self.mark in _handed_in

    def describe(self, pixels: Any) -> NDArray[np.float32]:
        """One text or picture as a row."""
        return np.asarray(self.describe_all([pixels])[0])

    def describe_all(self, images: Iterable[Any], n_jobs: int | None = -1) -> NDArray[np.float32]:
        """A row for each, in batches; the object decides about threads."""
        if (encode := _handed_in.get(self.mark)) is None:
            raise MissingEncoderError(f"the encoder {self.called} lives in the program that used it; give encoder=…")
        source, found = iter(images), []
        while batch := list(islice(source, BATCH)):
            found.append(rows_of(encode, batch, self.called, self.n_features))
        if not found:
            raise ValueError("images is empty; give at least one.")
        return np.concatenate(found)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GivenEncoder) and self.subject == other.subject and is_like(self.probe, other.probe)

    def __hash__(self) -> int:
        return hash((self.subject, self.n_features))

    def __str__(self) -> str:
        return f"{self.subject} by the encoder {self.called}"


def hand_in(encoder: Any, subject: str, stored: Descriptor | None = None) -> GivenEncoder:
    """The descriptor of an object; as `stored`, if that is what an object that makes the same of a probe left."""
    call = getattr(encoder, "encode", None)
    if not callable(call):
        call = encoder
    if not callable(call):
        raise ValueError(f"encoder={encoder!r}; give a path, a function, or something with a method encode.")
    called = getattr(encoder, "__name__", type(encoder).__name__)
    probe = rows_of(call, [*(PROBE_TEXTS if subject == TEXTS else PROBE_PICTURES)], called)
    made = GivenEncoder(subject, called, probe)
    if stored is not None and made == stored:
        assert isinstance(stored, GivenEncoder)
        made = stored
    _handed_in[made.mark] = call
    return made


def rows_of(encode: Callable[[list[Any]], Any], things: list[Any], called: str, width: int | None = None) -> Any:
    """What an object makes of some things, checked, float32 [n, d]."""
    found = np.asarray(encode(things))
    if (
        found.ndim != 2
        or len(found) != len(things)
        or found.dtype.kind not in "fiu"
        or width not in (None, found.shape[1])
    ):
        needed = f"[{len(things)}, {'d' if width is None else width}]"
        raise ValueError(f"encoder {called} gave {found.dtype} {found.shape} for {len(things)}; give numbers {needed}.")
    rows = found.astype(np.float32)
    if not np.isfinite(rows).all():
        raise ValueError(f"encoder {called} gave NaN or infinity; give finite numbers.")
    return rows


def is_like(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether rows [p, d] are the same but for rounding, each of them."""
    if one.shape != other.shape:
        return False
    one, other = one.astype(np.float64), other.astype(np.float64)
    lengths, others = np.linalg.norm(one, axis=1), np.linalg.norm(other, axis=1)
    close = np.isclose(lengths, others, rtol=1e-2, atol=0)
    return bool((close & ((one * other).sum(axis=1) >= LIKE * lengths * others)).all())
