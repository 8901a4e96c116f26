"""How many images a second GIST describes, against plain batched FFTs in float32 in the same run.

python benchmarks/descriptors.py             # 32 × 32 × 3 images, one thread and all threads
"""

import argparse
from functools import lru_cache

import numpy as np
import scipy.fft
import scipy.ndimage
from measuring import best

from gphash.data.descriptors import gist
from gphash.execution.local import LocalExecutor, count_jobs, row_blocks

BORDER, EXTENSION, PLAIN_BATCH = 5, 32, 32


def smooth_images(n_images: int, side: int = 32, seed: int = 0) -> np.ndarray:
    """Coloured noise with the falling spectrum of photographs, uint8 [n, side, side, 3]."""
    rng = np.random.default_rng(seed)
    images = np.zeros((n_images, side, side, 3), dtype=np.float32)
    for width in (0.7, 2.0, 6.0):
        noise = rng.standard_normal(images.shape, dtype=np.float32)
        images += width * scipy.ndimage.gaussian_filter(noise, (0, width, width, 0.5), mode="reflect")
    low, high = images.min(axis=(1, 2, 3), keepdims=True), images.max(axis=(1, 2, 3), keepdims=True)
    return (255 * (images - low) / (high - low)).astype(np.uint8)


def plain(images: np.ndarray, n_jobs: int) -> np.ndarray:
    """GIST of square images of even side by full-size transforms, batch by batch, [n, 512]."""
    with LocalExecutor(n_jobs) as executor:
        blocks = row_blocks(len(images), PLAIN_BATCH)
        return np.concatenate(list(executor.collect(lambda rows: plain_batch(images[rows]), blocks)))


def plain_batch(images: np.ndarray) -> np.ndarray:
    side = images.shape[1]
    lowpass, filters = transfers(side)
    grey = images.mean(axis=3, dtype=np.float32)
    grey -= grey.min(axis=(1, 2), keepdims=True)
    grey *= 255 / grey.max(axis=(1, 2), keepdims=True)
    image = np.pad(np.log1p(grey), ((0, 0), (BORDER, BORDER), (BORDER, BORDER)), mode="symmetric")
    detail = image - scipy.fft.ifft2(scipy.fft.fft2(image) * lowpass).real
    detail /= np.float32(0.2) + np.sqrt(np.abs(scipy.fft.ifft2(scipy.fft.fft2(detail * detail) * lowpass)))
    inner = detail[:, BORDER : BORDER + side, BORDER : BORDER + side]
    padded = np.pad(inner, ((0, 0), (EXTENSION, EXTENSION), (EXTENSION, EXTENSION)), mode="symmetric")
    spectrum = scipy.fft.fft2(padded)
    middle = slice(EXTENSION, EXTENSION + side)
    means = np.empty((len(images), len(filters), 4, 4), dtype=np.float32)
    for number, transfer in enumerate(filters):
        magnitude = np.abs(scipy.fft.ifft2(spectrum * transfer)[:, middle, middle])
        means[:, number] = magnitude.reshape(-1, 4, side // 4, 4, side // 4).mean(axis=(2, 4))
    return means.reshape(len(images), -1)


@lru_cache
def transfers(side: int) -> tuple[np.ndarray, np.ndarray]:
    square = scipy.fft.fftfreq(side + 2 * BORDER, 1 / (side + 2 * BORDER)) ** 2
    lowpass = np.exp(-(square[:, None] + square) * np.log(2) / 4**2)
    f = scipy.fft.fftfreq(side + 2 * EXTENSION)
    frequency, angle = np.hypot(f[:, None], f), np.arctan2(f[:, None], f)
    filters = []
    for scale in range(4):
        for orientation in range(8):
            turned = angle + np.pi / 8 * orientation
            turned = np.where(turned > np.pi, turned - 2 * np.pi, turned)
            filters.append(np.exp(-3.5 * (frequency * 1.85**scale / 0.3 - 1) ** 2 - 2 * np.pi * turned**2))
    return lowpass.astype(np.float32), np.array(filters, dtype=np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=4000, help="images described at a time (default 4,000)")
    parser.add_argument("--repeats", type=int, default=5, help="interleaved repeats (default 5)")
    args = parser.parse_args()
    images = smooth_images(args.images)
    some = images[: max(PLAIN_BATCH, args.images // 10)]  # the plain way is slow
    exact = plain(some, 1)
    error = np.abs(gist.describe(some) - exact).max(axis=1) / exact.max(axis=1)
    print(f"{args.images:,} images of 32 × 32 × 3, {args.repeats} interleaved repeats")
    print(f"largest difference to plain FFTs, of an image's largest value: {error.max():.1e}   (aim: at most 1e-2)")

    rates: dict[tuple[str, int], list[float]] = {}
    threads = sorted({1, count_jobs(-1)})
    for _ in range(args.repeats):
        for n_jobs in threads:
            works = {
                "plain": (some, lambda n_jobs=n_jobs: plain(some, n_jobs)),
                "gist": (images, lambda n_jobs=n_jobs: gist.describe(images, n_jobs=n_jobs)),
            }
            for name, (rows, work) in works.items():
                rates.setdefault((name, n_jobs), []).append(len(rows) / best(work, 1))
    for n_jobs in threads:
        ours, theirs = rates["gist", n_jobs], rates["plain", n_jobs]
        aim = "   (aim: under 60 s on two idle cores)" if n_jobs > 1 else ""
        print(
            f"  {n_jobs} thread{'s' * (n_jobs > 1):1s}  gist {max(ours):7,.0f} images/s (best)   "
            f"plain {max(theirs):6,.0f} images/s (best)   {np.median(np.divide(ours, theirs)):5.2f} × (median)   "
            f"60,000 images: {60_000 / max(ours):5.1f} s best, {60_000 / np.median(ours):5.1f} s median{aim}"
        )


if __name__ == "__main__":
    main()
