"""The methods that GPH is compared with, one a file, under the contract of `gphash.GPHasher`."""

from gphash.baselines.hadamard_ridge import HadamardRidge
from gphash.baselines.lsh import LSH
from gphash.baselines.sdh import SDH

__all__ = [
    "LSH",
    "SDH",
    "HadamardRidge",
]
