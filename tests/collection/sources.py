"""Small sources, models and pictures for collections."""

import io

import numpy as np
from PIL import Image

from gphash import GPHasher
from gphash.data.descriptors.greys import Pixels
from gphash.data.known import digits
from gphash.data.sources import Source

N_ROWS = 300


def of_digits(n_rows=N_ROWS, **changes):
    """The first digits: features, labels and pixels."""
    rows = digits.load().train
    whole = Source(
        name="digits",
        X=rows.X[:n_rows],
        y=rows.y[:n_rows],
        pairs=None,
        classes=tuple(str(digit) for digit in range(10)),
        images=rows.images[:n_rows],
        ids=None,
        descriptor=Pixels((8, 8)),
        checksum="",
        skipped=(),
        folder=None,
    )
    return whole._replace(**changes)


def tagged():
    """The same with tags, of which 1 has none."""
    y = of_digits().y
    tags = np.stack([y % 2 == 0, y >= 5, np.isin(y, [3, 8, 9])], axis=1).astype(np.uint8)
    return of_digits(y=tags, classes=("even", "large", "round"))


def folder_of_pictures(folder, n_rows=30):
    """The same as files: PNG, but for a few other formats."""
    whole = of_digits(n_rows)
    paths = []
    for row in range(n_rows):
        ending = {1: "bmp", 2: "jpg", 3: "gif", 4: "webp", 5: "tif"}.get(row, "png")
        path = folder / whole.classes[whole.y[row]] / f"ziffer ä{row}.{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(whole.images[row]).save(path)
        paths.append(path)
    return whole._replace(name=str(folder), images=paths, folder=folder)


def hasher(n_bits=8, seed=0):
    whole = of_digits()
    return GPHasher(n_bits=n_bits, n_inducing=50, random_state=seed).fit(whole.X, whole.y)


def png_of(pixels):
    """The content of a PNG file, made by somebody else."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()
