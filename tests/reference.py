"""Slow, honest oracles, each written from the mathematics and from nothing in the package.

Equation numbers are those of Rasmussen & Williams, Gaussian Processes for Machine Learning (2006).
"""

import itertools
import math
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr


def squared_exponential(A, B, length_scale, signal_scale):
    """k(a, b) = σ_f² exp(−‖a − b‖² / 2ℓ²), one pair after another."""
    K = np.empty((len(A), len(B)))
    for i, a in enumerate(A):
        for j, b in enumerate(B):
            distance = math.fsum((float(p) - float(q)) ** 2 for p, q in zip(a, b, strict=True))
            K[i, j] = signal_scale**2 * math.exp(-distance / (2 * length_scale**2))
    return K


def tilted_moments(mean, variance, sign, noise):
    """Log normaliser, mean and variance of N(f | mean, variance) Φ(sign f / √noise), by the trapezoidal rule."""
    spread = math.sqrt(variance)

    def log_density(f):
        return -((f - mean) ** 2) / (2 * variance) + log_ndtr(sign * f / math.sqrt(noise))

    coarse = np.linspace(min(mean, 0) - 15 * spread, max(mean, 0) + 15 * spread, 20001)
    mode = coarse[log_density(coarse).argmax()]
    step = 30 * spread / 40000
    f = mode + step * np.arange(-20000, 20001)
    log_values = log_density(f)
    values = np.exp(log_values - log_values.max())
    total = values.sum()
    first = (values * f).sum() / total
    second = (values * (f - first) ** 2).sum() / total
    log_normaliser = math.log(total * step) + log_values.max() - math.log(spread * math.sqrt(2 * math.pi))
    return log_normaliser, first, second


class DenseEP(NamedTuple):
    """Converged sites in f-space, posterior marginals and cavities."""

    precision: np.ndarray
    shift: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    cavity_mean: np.ndarray
    cavity_variance: np.ndarray


def dense_ep(K, signs, tolerance=1e-13, max_sweeps=500):
    """Full-GP classification under Φ(y f) by sequential EP (algorithm 3.5), until sites stand still."""
    n = len(K)
    tau, nu = np.zeros(n), np.zeros(n)
    for _ in range(max_sweeps):
        Sigma, mu = _posterior(K, tau, nu)
        before = tau.copy(), nu.copy()
        for i in range(n):
            cavity_tau, cavity_nu = 1 / Sigma[i, i] - tau[i], mu[i] / Sigma[i, i] - nu[i]
            m, s2 = cavity_nu / cavity_tau, 1 / cavity_tau
            # (3.58): moments of the cavity times the likelihood.
            z = signs[i] * m / math.sqrt(1 + s2)
            ratio = math.exp(-0.5 * z * z - 0.5 * math.log(2 * math.pi) - log_ndtr(z))
            tilted_mean = m + signs[i] * s2 * ratio / math.sqrt(1 + s2)
            tilted_variance = s2 - s2**2 * ratio / (1 + s2) * (z + ratio)
            change = 1 / tilted_variance - cavity_tau - tau[i]
            tau[i] += change
            nu[i] = tilted_mean / tilted_variance - cavity_nu
            # (3.70): rank-one update of the covariance.
            Sigma = Sigma - change / (1 + change * Sigma[i, i]) * np.outer(Sigma[:, i], Sigma[:, i])
            mu = Sigma @ nu
        if max(np.abs(tau - before[0]).max(), np.abs(nu - before[1]).max()) < tolerance:
            break
    else:
        raise AssertionError("dense EP has not converged")
    Sigma, mu = _posterior(K, tau, nu)
    variance = np.diag(Sigma)
    s2 = 1 / (1 / variance - tau)
    m = s2 * (mu / variance - nu)
    return DenseEP(tau, nu, mu, variance, m, s2)


def _posterior(K, tau, nu):
    root = np.sqrt(tau)
    B = np.eye(len(K)) + root[:, None] * K * root
    Sigma = K - (K * root) @ np.linalg.solve(B, root[:, None] * K)
    return Sigma, Sigma @ nu


def label_pairs(labels, rows, partners):
    """(row, partner, ±1, weight) for every row against every partner but itself; each unordered pair once."""
    return _judge(rows, partners, lambda a, b: labels[a] == labels[b])


def tag_pairs(tags, rows, partners):
    """The same for tag sets: similar when a tag is on both."""
    return _judge(rows, partners, lambda a, b: any(p and q for p, q in zip(tags[a], tags[b], strict=True)))


def _judge(rows, partners, similar):
    found = {frozenset((int(a), int(b))): None for a in rows for b in partners if a != b}
    return [(*sorted(pair), 1 if similar(*sorted(pair)) else -1, 1.0) for pair in found]


def log_joint(signs, gamma, pairs, scale, weight):
    """log p(S | Y) + GP term: κ Σ_pairs w log Φ(σ_y s y_aᵀ y_b) + Σ_ij log Φ(y_ij γ_ij)."""
    total = sum(w * log_ndtr(scale * s * int(signs[a].astype(int) @ signs[b].astype(int))) for a, b, s, w in pairs)
    return weight * total + log_ndtr(signs * gamma).sum()


def chance_by_enumeration(i, j, signs, gamma, pairs, scale, weight):
    """P(Y_ij = +1 | everything else), from the joint at both values of the bit."""
    values = []
    for bit in (-1, 1):
        at = signs.copy()
        at[i, j] = bit
        values.append(log_joint(at, gamma, pairs, scale, weight))
    return 1 / (1 + math.exp(values[0] - values[1]))


def pair_sum(code, j, partner_codes, s, weights, scale):
    """Σ_l w_l [log Φ(σ_y s_l V_l) at Y_ij = +1 minus the same at −1], partner by partner."""
    total = 0.0
    for theirs, judged, w in zip(partner_codes, s, weights, strict=True):
        rest = sum(int(a) * int(b) for k, (a, b) in enumerate(zip(code, theirs, strict=True)) if k != j)
        total += w * (log_ndtr(scale * judged * (rest + theirs[j])) - log_ndtr(scale * judged * (rest - theirs[j])))
    return total


def sample_in_turn(signs, gamma, uniforms, order, pairs, scale, weight):
    """Gibbs sampling one row after another and one bit after another, each bit against every partner singly."""
    signs = signs.astype(int)
    partners = {int(i): ([], [], []) for i in order}
    for a, b, s, w in pairs:
        for owner, other in ((a, b), (b, a)):
            if owner in partners:
                for column, value in zip(partners[owner], (other, s, w), strict=True):
                    column.append(value)
    flips = 0
    for i in map(int, order):
        others, s, w = (np.array(column) for column in partners[i])
        for j in range(signs.shape[1]):
            odds = log_ndtr(gamma[i, j]) - log_ndtr(-gamma[i, j])
            if len(others):
                rest = signs[others] @ signs[i] - signs[others, j] * signs[i, j]
                up, down = rest + signs[others, j], rest - signs[others, j]
                odds += weight * (w * (log_ndtr(scale * s * up) - log_ndtr(scale * s * down))).sum()
            new = 1 if uniforms[i, j] < np.exp(-np.logaddexp(0, -odds)) else -1
            flips += new != signs[i, j]
            signs[i, j] = new
    return signs.astype(np.int8), flips


def average_precision_over_orders(distances, relevant):
    """Mean average precision over all orders of the rows within ties."""
    ties = [np.flatnonzero(distances == d) for d in sorted(set(distances.tolist()))]
    values = []
    for orders in itertools.product(*(itertools.permutations(tie) for tie in ties)):
        hits, total = 0, 0.0
        for rank, row in enumerate(itertools.chain(*orders), start=1):
            if relevant[row]:
                hits += 1
                total += hits / rank
        values.append(total / hits if hits else math.nan)
    return math.fsum(values) / len(values)


class Quality(NamedTuple):
    """Quality of one ranking: over all of it, and at every depth asked for."""

    average_precision: float
    average_precision_at: list
    precision_at: list
    recall_at: list


def quality_over_orders(distances, relevant, depths):
    """Means over all orders of the rows within ties, each order walked through row by row; for few rows."""
    ties = [np.flatnonzero(distances == d) for d in sorted(set(distances.tolist()))]
    n_relevant = int(np.sum(relevant))
    if not n_relevant:  # nothing to find: precision is 0, the rest are shares of nothing
        nothing = [math.nan] * len(depths)
        return Quality(math.nan, nothing, [0.0] * len(depths), nothing)
    walks = []
    for orders in itertools.product(*(itertools.permutations(tie) for tie in ties)):
        row = list(itertools.chain(*orders))
        walk = []
        for depth in [len(row), *depths]:
            depth = min(depth, len(row))
            hits, total = 0, 0.0
            for rank in range(1, depth + 1):
                if relevant[row[rank - 1]]:
                    hits += 1
                    total += hits / rank
            walk.append((total / max(min(depth, n_relevant), 1), hits / max(depth, 1), hits / max(n_relevant, 1)))
        walks.append(walk)
    overall, *at = (
        [math.fsum(values) / len(walks) for values in zip(*place, strict=True)] for place in zip(*walks, strict=True)
    )
    return Quality(overall[0], [a for a, _, _ in at], [p for _, p, _ in at], [r for _, _, r in at])


def quality_by_position(distances, relevant, depths):
    """The same from what is to be expected at every position, one after another.

    The row at position p of a tie of n rows, r of them relevant, is relevant with probability r/n; if it is, then those
    before it in the tie are relevant with probability (r − 1)/(n − 1) each.
    """
    chance, precision = [], []  # of every position: that its row is relevant, and precision there if so
    hits = 0
    for d in sorted(set(distances.tolist())):
        tie = [bool(mark) for mark, other in zip(relevant, distances.tolist(), strict=True) if other == d]
        n, r, start = len(tie), sum(tie), len(chance)
        for p in range(n):
            others = p * (r - 1) / (n - 1) if n > 1 else 0.0
            chance.append(r / n)
            precision.append((hits + 1 + others) / (start + p + 1))
        hits += r

    if not hits:  # nothing to find: precision is 0, the rest are shares of nothing
        nothing = [math.nan] * len(depths)
        return Quality(math.nan, nothing, [0.0] * len(depths), nothing)

    def average(depth):
        terms = (a * b for a, b in zip(chance[:depth], precision[:depth], strict=True))
        return math.fsum(terms) / max(min(depth, hits), 1)

    depths = [min(depth, len(chance)) for depth in depths]
    found = [math.fsum(chance[:depth]) for depth in depths]
    return Quality(
        average(len(chance)),
        [average(depth) for depth in depths],
        [hit / max(depth, 1) for hit, depth in zip(found, depths, strict=True)],
        [hit / max(hits, 1) for hit in found],
    )


def precision_within(distances, relevant, radius):
    """Share of relevant rows among those within the radius; 0 when there are none."""
    inside = [bool(mark) for mark, d in zip(relevant, distances, strict=True) if d <= radius]
    return sum(inside) / len(inside) if inside else 0.0


def hamming_distance(a, b):
    """Bits that differ."""
    return sum(int(p) != int(q) for p, q in zip(a, b, strict=True))


def expected_distance(chances, bits):
    """Σ_j P(bit_j ≠ b_j), bit by bit."""
    return math.fsum(1 - p if b else p for p, b in zip(chances.tolist(), bits, strict=True))


def hamming_ranking(bits, ids, query):
    """(distance, id) of every item for one query, nearest first and by id within ties."""
    distances = (np.asarray(bits) != np.asarray(query)).sum(axis=1).tolist()
    return sorted(zip(distances, map(int, ids), strict=True))


def expected_ranking(bits, ids, chances):
    """(cost, id, expected distance) of every item for one query, by cost and by id within ties.

    A bit that differs from its likelier value costs |1 − 2 P_j|, to the nearest whole multiple of 2⁻⁴⁰; at P_j = 1/2
    that is nothing, whichever value counts as likelier. Distances are Σ_j P(bit_j ≠ b_j), never rounded.
    """
    chances = [float(p) for p in chances]
    weights = np.array([round(abs(1 - 2 * p) * 2**40) for p in chances], np.int64)
    differs = np.asarray(bits) != (np.array(chances) >= 0.5)
    costs = (differs * weights).sum(axis=1).tolist()
    distances = np.where(bits, 1 - np.array(chances), chances).sum(axis=1).tolist()
    return sorted(zip(costs, map(int, ids), distances, strict=True))


def same_label(a, b):
    """Whether two labels are equal."""
    return bool(a == b)


def shared_tag(a, b):
    """Whether some tag is on both."""
    return any(p and q for p, q in zip(a, b, strict=True))


def gist(image):
    """GIST of one image [H, W] or [H, W, channels] in float64, one full-size transform per filter.

    [512], as (scale, orientation, block row, block column).
    """
    grey = np.asarray(image, dtype=np.float64)
    if grey.ndim == 3:
        grey = grey.mean(axis=2)
    grey = grey - grey.min()
    if grey.max() > 0:
        grey = 255 * grey / grey.max()
    return gabor_means(gist_prefilter(grey))


def gist_prefilter(grey, cutoff=4, border=5):
    """Whitened and contrast-normalised image, of the same shape."""
    height, width = grey.shape
    image = np.pad(np.log(grey + 1), border, mode="symmetric")
    side = max(image.shape)
    side += side % 2
    image = np.pad(image, ((0, side - image.shape[0]), (0, side - image.shape[1])), mode="symmetric")

    grid = np.arange(-side // 2, side // 2)
    fx, fy = np.meshgrid(grid, grid)
    lowpass = np.fft.fftshift(np.exp(-(fx**2 + fy**2) / (cutoff / np.sqrt(np.log(2))) ** 2))

    detail = image - np.fft.ifft2(np.fft.fft2(image) * lowpass).real
    local_std = np.sqrt(np.abs(np.fft.ifft2(np.fft.fft2(detail**2) * lowpass)))
    return (detail / (0.2 + local_std))[border : border + height, border : border + width]


def gabor_transfer(shape, scale, orientation):
    """Transfer function of one Gabor filter on the DFT grid of `shape`."""
    fy, fx = np.meshgrid(np.fft.fftfreq(shape[0]), np.fft.fftfreq(shape[1]), indexing="ij")
    centre = 0.3 / 1.85**scale
    turned = np.arctan2(fy, fx) + np.pi / 8 * orientation
    turned = np.where(turned > np.pi, turned - 2 * np.pi, turned)
    sharpness = 16 * 8**2 / 32**2
    return np.exp(-10 * 0.35 * (np.hypot(fx, fy) / centre - 1) ** 2 - 2 * sharpness * np.pi * turned**2)


def gabor_means(image, extension=32):
    """Mean response magnitude of the 32 filters in each of 4 × 4 blocks."""
    height, width = image.shape
    padded = np.pad(image, extension, mode="symmetric")
    spectrum = np.fft.fft2(padded)
    rows = np.linspace(0, height, 5).astype(int)
    columns = np.linspace(0, width, 5).astype(int)
    means = np.empty((4, 8, 4, 4))
    for scale in range(4):
        for orientation in range(8):
            response = np.abs(np.fft.ifft2(spectrum * gabor_transfer(padded.shape, scale, orientation)))
            response = response[extension : extension + height, extension : extension + width]
            for r in range(4):
                for c in range(4):
                    block = response[rows[r] : rows[r + 1], columns[c] : columns[c + 1]]
                    means[scale, orientation, r, c] = block.mean()
    return means.ravel()


def area_average(image, height, width):
    """Image [H, W] reduced to [height, width]: along each axis pixels are cut into parts, and parts averaged."""
    for size in (height, width):
        parts = np.repeat(np.asarray(image, dtype=np.float64), size, axis=0)
        image = parts.reshape(size, len(image), image.shape[1]).mean(axis=1).T
    return image
