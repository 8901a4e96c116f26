"""Encoders by what users give: the path of an ONNX model or of its folder, a function, or anything with `encode`."""

import os
from pathlib import Path
from typing import Any

from gphash.data.descriptors import given_encoder, networks, picture_encoder, text_encoder
from gphash.data.descriptors.descriptor import DESCRIPTORS, PICTURES, TEXTS, Descriptor
from gphash.data.descriptors.networks import MissingEncoderError
from gphash.data.descriptors.picture_encoder import PictureEncoder
from gphash.data.descriptors.text_encoder import TextEncoder

SUFFIX = ".onnx"
MODELS = ("model.onnx", "onnx/model.onnx")


def is_path(descriptor: Any) -> bool:
    """Whether a descriptor is given as a path, and not by its registered name."""
    if isinstance(descriptor, str):
        return descriptor not in DESCRIPTORS and (descriptor.endswith(SUFFIX) or os.path.exists(descriptor))
    return isinstance(descriptor, os.PathLike)


def open_encoder(path: str | os.PathLike[str], **settings: Any) -> Descriptor:
    """The encoder of a model's file ``.onnx``, or of a folder with ``model.onnx`` or ``onnx/model.onnx``.

    It is one of texts if there is a ``tokenizer.json`` beside it, and one of pictures if not.

    Parameters
    ----------
    settings
        What no file beside the model says, or what is to be otherwise. Of texts: `pooling` ("mean", "cls", "max" or
        "last"), `normalised`, `tokens`, `output`. Of pictures: `size`, `mean`, `deviation`, `pooling` ("cls" or
        "mean"), `normalised`, `output`.
    """
    given = Path(path).expanduser()
    if given.is_dir():
        found = [given / name for name in MODELS if (given / name).is_file()]
        if not found:
            raise FileNotFoundError(f"descriptor={str(path)!r} has no {' or '.join(MODELS)}; give the model's file.")
        model, folder = found[0], given
    else:
        model = given
        folder = given.parent
        if folder.name == "onnx" and not (folder / "tokenizer.json").is_file():
            folder = folder.parent
    is_text = (folder / "tokenizer.json").is_file()
    kind: Any = text_encoder if is_text else picture_encoder
    if odd := set(settings) - set(kind.SETTINGS):
        what = "texts" if is_text else "pictures"
        raise ValueError(f"{min(odd)}={settings[min(odd)]!r}; an encoder of {what} has {', '.join(kind.SETTINGS)}.")
    return (TextEncoder if is_text else PictureEncoder).open(model, folder, **settings)


def of(descriptor: Any, subject: str = TEXTS, **settings: Any) -> Descriptor | str | None:
    """A descriptor from whatever was given; a registered name, and None, stay what they are.

    `subject` is what a function describes.
    """
    is_name = isinstance(descriptor, str) and descriptor in DESCRIPTORS
    if descriptor is None or isinstance(descriptor, Descriptor) or is_name:
        if settings:
            name = min(settings)
            raise ValueError(f"{name}={settings[name]!r} is a setting of encoders; give the path of one, too.")
        found: Descriptor | str | None = descriptor
        return found
    if isinstance(descriptor, str) and not is_path(descriptor):
        names = ", ".join(repr(name) for name in DESCRIPTORS if not name.endswith("-encoder"))
        raise ValueError(f"descriptor={descriptor!r}; give one of {names}, or the path of an ONNX model.")
    if isinstance(descriptor, str | os.PathLike):
        return open_encoder(descriptor, **settings)
    return given_encoder.hand_in(descriptor, subject)


def hand_in(encoder: Any, stored: Descriptor | None, owner: str) -> None:
    """Let this process use an encoder wherever `stored` is asked to describe; another one is refused."""
    if stored is None:
        raise ValueError(f"encoder={_told(encoder)}, but {owner!r} holds plain features; leave it out.")
    if isinstance(encoder, str | os.PathLike):
        _hand_in_path(Path(encoder).expanduser(), stored, owner)
        return
    made = encoder if isinstance(encoder, Descriptor) else given_encoder.hand_in(encoder, stored.takes, stored)
    if made != stored:
        raise MissingEncoderError(f"encoder={made}; {owner!r} was made of {stored}, and needs the same.")


def _hand_in_path(path: Path, stored: Descriptor, owner: str) -> None:
    """Find the files of an encoder, by their digests, at a path."""
    needed = [(name, getattr(stored, name)) for name in ("model", "tokenizer") if hasattr(stored, f"{name}_path")]
    if not needed:
        raise ValueError(f"encoder={str(path)!r}; {owner!r} was made of {stored}, which has no file.")
    if not path.exists():
        raise FileNotFoundError(f"encoder={str(path)!r}: there is no such file or folder.")
    home = path if path.is_dir() else path.parent
    models = [path / name for name in MODELS] if path.is_dir() else [path]
    places = {"model": models, "tokenizer": [home / "tokenizer.json", home.parent / "tokenizer.json"]}
    for name, digest in needed:
        seen = {str(place): networks.digest_of(place) for place in places[name] if place.is_file()}
        if digest not in seen.values():
            told = (
                "; ".join(f"{place!r} has {own}" for place, own in seen.items())
                or f"there is no {name} at {str(path)!r}"
            )
            raise MissingEncoderError(
                f"encoder={str(path)!r} is another one than {owner!r} was made with: its {name} has SHA-256 {digest}, "
                f"and {told} (docs/questions.md#another-encoder)."
            )


def _told(encoder: Any) -> str:
    return repr(os.fspath(encoder)) if isinstance(encoder, str | os.PathLike) else type(encoder).__name__


__all__ = ["PICTURES", "TEXTS", "MissingEncoderError", "hand_in", "is_path", "of", "open_encoder"]
