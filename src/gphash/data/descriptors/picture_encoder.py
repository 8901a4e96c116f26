"""Encoders of pictures: an ONNX model that takes an array of pixels.

The size of its pictures, and mean and deviation that bring pixels to the range it knows, are in
``preprocessor_config.json`` beside the model, as Hugging Face exports it, or are given. A picture is resized by Pillow,
bilinear unless the file says otherwise, and its middle is cut out where the file says so.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from gphash.data import pictures
from gphash.data.descriptors import networks
from gphash.data.descriptors.descriptor import Descriptor, check_sides
from gphash.data.descriptors.networks import EncodingError, Network
from gphash.data.descriptors.text_encoder import check_fields
from gphash.files import DataError

CONFIG = "preprocessor_config.json"
LIKED = ("image_embeds", "pooler_output", "last_hidden_state")
POOLINGS = ("mean", "cls")
MOST_SHORTER = 1024  # pixels: the other side may be very much longer
SETTINGS = ("size", "mean", "deviation", "pooling", "normalised", "output")


@dataclass(frozen=True)
class PictureEncoder(Descriptor):
    """Rows of pictures by a network.

    model
        Hexadecimal SHA-256 of its file.
    shape, resized
        Height and width that the network takes, and those of the picture that this is cut from; resized is () where
        the shorter side is brought to `shorter` and the other keeps the ratio.
    shorter
        Pixels of the shorter side, or 0.
    mean, deviation
        Of red, green and blue, as shares of `unit`.
    unit
        What a pixel is divided by first: 255, or 1 for networks that take pixels as they are.
    resample
        Pillow's number of the filter: 2 is bilinear, 3 bicubic.
    output, pooling, normalised
        The network's output; how an array of tokens or places becomes a row; and whether it is brought to length 1.
    width
        Length of a row.
    model_path
        Where the file was; a file there with another SHA-256 is not used.
    """

    page: ClassVar[int] = 64
    model: str
    shape: tuple[int, ...]
    resized: tuple[int, ...]
    shorter: int
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    unit: float
    resample: int
    output: str
    pooling: str
    normalised: bool
    width: int
    model_path: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        check_fields(self, ("model", "output", "pooling", "model_path"), self.width)
        check_sides(self.shape, (2,))
        check_sides(self.resized, (0, 2))
        if type(self.shorter) is not int or not 0 <= self.shorter <= MOST_SHORTER:
            raise ValueError(f"shorter={self.shorter!r}; give a whole number up to {MOST_SHORTER}.")
        for name in ("mean", "deviation"):
            values = getattr(self, name)
            right = isinstance(values, tuple) and all(type(one) in (int, float) and abs(one) < 1e6 for one in values)
            if not right or len(values) != 3 or (name == "deviation" and 0 in values):
                raise ValueError(f"{name}={values!r}; give three numbers, for red, green and blue.")
        if type(self.unit) not in (int, float) or not 0 < self.unit < 1e6 or self.resample not in range(6):
            raise ValueError(f"unit={self.unit!r}, resample={self.resample!r}; give a number above 0, and 0 to 5.")
        if self.pooling not in POOLINGS or type(self.normalised) is not bool:
            raise ValueError(f"pooling={self.pooling!r}, normalised={self.normalised!r}; give {POOLINGS} and a truth.")

    @classmethod
    def fit(cls, images: Any, n_jobs: int | None = -1, **options: Any) -> Self:
        """An encoder is not learned."""
        raise ValueError("descriptor='picture-encoder'; give the path of its ONNX model.")

    @classmethod
    def open(cls, model: Path, folder: Path, **settings: Any) -> Self:
        """The encoder of a model's file, with a folder of its settings; `SETTINGS` go before these."""
        told = _told(folder / CONFIG)
        digest = networks.digest_of(model)
        network = networks.network(digest, str(model))
        fixed = _sides(network)
        if "size" in settings:
            told |= {"shape": _pair(settings["size"], "size"), "resized": (), "shorter": 0}
            told["resized"] = told["shape"]
        if fixed is not None and "shape" not in told:
            told |= {"shape": fixed, "resized": fixed, "shorter": 0}
        for name in ("mean", "deviation"):
            if name in settings:
                told[name] = _three(settings[name], name)
        if missing := [name for name in ("shape", "mean", "deviation") if name not in told]:
            needed = " and ".join("size" if name == "shape" else name for name in missing)
            raise ValueError(
                f"{network.label} has no {CONFIG} beside it that says {needed}; give it: --encoder-option "
                "NAME=VALUE, or as arguments."
            )
        if fixed is not None and fixed != told["shape"]:
            raise ValueError(f"size={told['shape']}; {network.label} takes pictures of {fixed}, height and width.")
        port = network.output(settings.get("output"), LIKED)
        told |= {"output": port.name, "pooling": settings.get("pooling", "cls")}
        told["normalised"] = settings.get("normalised", False)
        draft = cls(model=digest, width=1, model_path=str(model.absolute()), **{"unit": 255.0, "resample": 2} | told)
        found = _run(draft, network, np.zeros((*draft.shape, 3), np.uint8))
        if found.ndim != 1:
            raise DataError(f"{network.label}: the output {port.name!r} has {found.ndim + 1} dimensions, not 2 to 4")
        return replace(draft, width=len(found))

    @property
    def n_features(self) -> int:
        """Length of a row."""
        return self.width

    @property
    def longest(self) -> int:  # type: ignore[override]
        """Pixels of a side that the network sees, at least."""
        return max(self.shorter, *self.shape, *self.resized)

    def is_at_hand(self) -> bool:
        """Whether its file is there."""
        return networks.is_there(self.model, self.model_path)

    def describe(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """One picture as a row."""
        network = networks.network(self.model, self.model_path)
        row = _run(self, network, self._brought(pixels))
        if row.shape != (self.width,) or not np.isfinite(row).all():
            needed = f"{self.width} finite numbers are needed"
            raise EncodingError(f"{network.label} gives a row of shape {row.shape}; {needed}")
        return row

    def _brought(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The part of a picture that the network sees, [height, width, 3]."""
        height, width = self.resized or self.shape
        if self.shorter:
            given_height, given_width = pixels.shape[:2]
            scale = self.shorter / min(given_height, given_width)
            height, width = (
                max(self.shorter, round(scale * given_height)),
                max(self.shorter, round(scale * given_width)),
            )
        found = pictures.resized(pixels, height, width, self.resample)
        top, left = ((have - want) // 2 for have, want in zip((height, width), self.shape, strict=True))
        padded = np.zeros((*self.shape, 3), np.uint8)
        part = found[max(0, top) : max(0, top) + self.shape[0], max(0, left) : max(0, left) + self.shape[1]]
        down, right = max(0, -top), max(0, -left)
        padded[down : down + part.shape[0], right : right + part.shape[1]] = part
        return padded

    def __str__(self) -> str:
        return f"pictures by the encoder {Path(self.model_path).name or 'model'} ({self.model[:12]}…)"


def _told(path: Path) -> dict[str, Any]:
    """What a preprocessor's file says."""
    config = networks.settings_in(path)
    if config is None:
        return {}
    found: dict[str, Any] = {"unit": 255.0, "shorter": 0}
    try:
        size = config.get("size", {})
        if isinstance(size, dict) and "shortest_edge" in size:
            found |= {"shorter": int(size["shortest_edge"]), "resized": ()}
        elif size and config.get("do_resize", True):
            found["resized"] = _pair(size, "size")
        if config.get("do_center_crop", "crop_size" in config) and config.get("crop_size"):
            found["shape"] = _pair(config["crop_size"], "crop_size")
        elif found.get("resized") or found["shorter"]:
            found["shape"] = found["resized"] or (found["shorter"],) * 2
        found.setdefault("resized", found.get("shape", ()))
        found["resample"] = int(config.get("resample", 2))
        if config.get("do_rescale", True):
            found["unit"] = 1 / float(config.get("rescale_factor", 1 / 255))
        else:
            found["unit"] = 1.0
        scales = config.get("do_normalize", True)
        found["mean"] = tuple(float(one) for one in config["image_mean"]) if scales else (0.0, 0.0, 0.0)
        found["deviation"] = tuple(float(one) for one in config["image_std"]) if scales else (1.0, 1.0, 1.0)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise DataError(f"{str(path)!r} is not what a preprocessor's file should be: {error!r}") from error
    return found


def _three(given: Any, name: str) -> tuple[float, ...]:
    """A number for each colour; whether there are three, the encoder checks."""
    try:
        return tuple(float(one) for one in given)
    except (TypeError, ValueError):
        raise ValueError(f"{name}={given!r}; give three numbers, for red, green and blue.") from None


def _pair(size: Any, name: str) -> tuple[int, int]:
    """Height and width."""
    if isinstance(size, dict):
        size = (size["height"], size["width"])
    given = tuple(size) if isinstance(size, list | tuple) else (size, size)
    if len(given) != 2 or any(isinstance(one, bool) or not isinstance(one, int | float) or one % 1 for one in given):
        raise ValueError(f"{name}={size!r}; give a whole number, or height and width.")
    return int(given[0]), int(given[1])


def _sides(network: Network) -> tuple[int, int] | None:
    """Height and width, if a network takes no others; a DataError if it does not take pictures."""
    port = network.inputs[0]
    right = len(network.inputs) == 1 and len(port.shape) == 4 and _has_channels(port.shape)
    if not right:
        told = ", ".join(f"{one.name} {list(one.shape)}" for one in network.inputs)
        raise DataError(
            f"{network.label} has the inputs {told}; an encoder of pictures has one, [n, 3, height, width] or [n, "
            "height, width, 3]"
        )
    height, width = port.shape[2:] if port.shape[1] == 3 or port.shape[3] != 3 else port.shape[1:3]
    return (height, width) if height and width else None


def _has_channels(shape: tuple[int, ...]) -> bool:
    return 3 in (shape[1], shape[3]) or not shape[1]


def _run(encoder: PictureEncoder, network: Network, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The row of a picture of the size that the network takes."""
    port = network.inputs[0]
    mean, deviation = (np.array(one, np.float32) for one in (encoder.mean, encoder.deviation))
    values = (pixels.astype(np.float32) / np.float32(encoder.unit) - mean) / deviation
    last = port.shape[3] == 3 and port.shape[1] != 3
    feed = (values if last else values.transpose(2, 0, 1))[None].astype(port.kind)
    found = network.run(encoder.output, {port.name: feed})[0].astype(np.float64)
    if found.ndim == 3:  # [channels, height, width], or the other way round
        found = found.mean(axis=(0, 1) if last else (1, 2))
    elif found.ndim == 2:
        found = found[0] if encoder.pooling == "cls" else found.mean(axis=0)
    if encoder.normalised:
        found = found / max(float(np.linalg.norm(found)), 1e-12)
    return np.asarray(found, dtype=np.float32)
