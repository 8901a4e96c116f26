"""The methods that GPH is compared with, one a file, under the contract of `gphash.GPHasher`."""

from gphash.baselines.cca_itq import CCAITQ
from gphash.baselines.fasthash import FastHash
from gphash.baselines.hadamard_ridge import HadamardRidge
from gphash.baselines.itq import ITQ
from gphash.baselines.klsh import KLSH
from gphash.baselines.ksh import KSH
from gphash.baselines.lfh import LFH
from gphash.baselines.lsh import LSH
from gphash.baselines.mlh import MLH
from gphash.baselines.pcah import PCAH
from gphash.baselines.sdh import SDH
from gphash.baselines.spectral import SpectralHashing

__all__ = [
    "CCAITQ",
    "ITQ",
    "KLSH",
    "KSH",
    "LFH",
    "LSH",
    "MLH",
    "PCAH",
    "SDH",
    "FastHash",
    "HadamardRidge",
    "SpectralHashing",
]
