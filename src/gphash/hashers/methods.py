"""All methods by their names.

To add a method, write a `Hasher` in a file of its own and name it here; from another package, register it.
"""

from typing import Any

from gphash.registry import Registry

HOMES = {
    "gph": "gphash.hashers.gp:GPHasher",
    "hadamard-ridge": "gphash.hashers.ridge_methods:HadamardRidge",
    "classifier-codes": "gphash.hashers.classifier_codes:ClassifierCodes",
    "sdh": "gphash.hashers.ridge_methods:SDH",
    "fasthash": "gphash.hashers.fasthash:FastHash",
    "ksh": "gphash.hashers.ksh:KSH",
    "lfh": "gphash.hashers.ridge_methods:LFH",
    "mlh": "gphash.hashers.mlh:MLH",
    "cca-itq": "gphash.hashers.projection_methods:CCAITQ",
    "itq": "gphash.hashers.projection_methods:ITQ",
    "pcah": "gphash.hashers.projection_methods:PCAH",
    "spectral": "gphash.hashers.projection_methods:SpectralHashing",
    "klsh": "gphash.hashers.kernel_methods:KLSH",
    "lsh": "gphash.hashers.projection_methods:LSH",
}

METHODS: Registry[Any] = Registry("method", HOMES)
"""From what the paper proposes to what needs no training, in the order in which tables list them."""
