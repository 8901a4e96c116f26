"""One of each kind, added from outside the package: trained, saved, loaded, evaluated, indexed, searched and served."""

import contextlib
from dataclasses import dataclass
from typing import NamedTuple

import httpx
import numpy as np
import pytest

from gphash import Collection, GPHasher, HammingIndex, Pairs, load
from gphash.data.dataset import Dataset, KnownData, Split, array_checksum
from gphash.data.descriptors.descriptor import DESCRIPTORS, Descriptor
from gphash.data.known import digits
from gphash.data.known.data_sets import DATA_SETS
from gphash.evaluation.metrics import METRICS, Metric
from gphash.hashers.methods import METHODS
from gphash.hashers.projection_methods import LinearHasher
from gphash.index.backends import BACKENDS, open_index
from gphash.index.rankings import RANKINGS, Ranking
from gphash.method.kernels import KERNELS, Kernel
from gphash.supervision import similarity
from gphash.supervision.targets import KINDS, Kind
from tests.cli.running import gphash, told
from tests.digits import QUICK

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
pytest.importorskip("fastapi", reason="the service is not installed")

from tests.server.conftest import serving  # noqa: E402


@dataclass(frozen=True)
class Cauchy(Kernel):
    """A kernel with long tails."""

    def correlation(self, squared):
        return 1 / (1 + squared)


@dataclass(frozen=True)
class MeanColour(Descriptor):
    """The mean colour of a picture."""

    n_features = 3

    def describe(self, pixels):
        rgb = pixels if pixels.ndim == 3 else np.repeat(pixels[..., None], 3, axis=2)
        return rgb.mean(axis=(0, 1)).astype(np.float32)


def share_in_first_tie(ties):
    first = (ties.sizes > 0).argmax(axis=1)[:, None]
    return (np.take_along_axis(ties.hits, first, 1) / np.take_along_axis(ties.sizes, first, 1))[:, 0]


class Triplets(NamedTuple):
    """Rows i are more like rows j than like rows k."""

    i: list
    j: list
    k: list


def judged(y, n_rows, balance_pairs):
    signs = np.repeat([1, -1], len(y.i))
    return similarity.from_pairs(Pairs([*y.i, *y.i], [*y.j, *y.k], signs), n_rows, balance_pairs)


class Columns(LinearHasher):
    """One column of X a bit."""

    takes = ()

    def _directions(self, X, supervision, generator):
        chosen = generator.choice(X.shape[1], self.n_bits, replace=False)
        return np.eye(X.shape[1])[:, chosen], np.zeros(self.n_bits)


def load_ring(data_dir=None, *, download=True, progress=None):
    angles = np.linspace(0, 2 * np.pi, 400, endpoint=False)
    X = np.column_stack([np.cos(angles), np.sin(angles)]).astype(np.float32)
    y = (4 * angles // (2 * np.pi)).astype(np.int64)
    train, test = Split(X[::2], y[::2], None), Split(X[1::2], y[1::2], None)
    return Dataset("ring", train, test, ("0", "1", "2", "3"), "x and y", array_checksum({"X": X, "y": y}), "made")


class Farthest(Ranking):
    """The code that differs most comes first."""

    title, dtype, descending = "Hamming distance, farthest first", np.int64, True

    def scores(self, query, packed, n_bits):
        return np.bitwise_count(packed ^ query).sum(axis=1)


class Remembered(HammingIndex):
    """An index that is known by a name, and is in memory only."""

    known: dict[str, HammingIndex] = {}  # noqa: RUF012, shared on purpose

    @classmethod
    def open(cls, place, **options):
        return cls.known[place.removeprefix("memory://")]


TOYS = [
    (KERNELS, "cauchy", Cauchy),
    (DESCRIPTORS, "mean-colour", MeanColour),
    (
        METRICS,
        "depths",
        Metric("by depth", "", True, "relevant rows at every depth", lambda ties: ties.precisions[:, :-1]),
    ),
    (METRICS, "first", Metric("first tie", "", True, "share of relevant rows in the first tie", share_in_first_tie)),
    (KINDS, "triplets", Kind("Triplets", lambda y: isinstance(y, Triplets), judged)),
    (METHODS, "columns", Columns),
    (DATA_SETS, "ring", KnownData(load_ring, "made on the spot")),
    (RANKINGS, "farthest", Farthest()),
    (BACKENDS, "memory", Remembered),
]


@pytest.fixture(autouse=True)
def toys():
    with contextlib.ExitStack() as added:
        for registry, name, toy in TOYS:
            registry.register(name, toy)
            added.callback(registry._things.pop, name)
        yield


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A folder of small pictures of three colours."""
    folder, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for place, colour in enumerate(("red", "green", "blue")):
        (folder / "photos" / colour).mkdir(parents=True)
        for number in range(20):
            pixels = rng.integers(0, 100, (8, 8, 3), dtype=np.uint8)
            pixels[..., place] += 150
            Image.fromarray(pixels).save(folder / "photos" / colour / f"{number}.png")
    return folder


def classes(neighbours):
    return {label for neighbour in neighbours for label in neighbour["labels"]}


def test_a_kernel_a_descriptor_and_a_metric_from_pictures_to_the_service(photos):
    model = ("--descriptor", "mean-colour", "--set", "kernel=cauchy", "--bits", "8", "-o", "m.gph")
    gphash("fit", "photos", *model, cwd=photos)
    assert load(photos / "m.gph").kernel == "cauchy"
    report = told("evaluate", "m.gph", "photos", cwd=photos)
    assert report["results"]["hamming"]["first"] > 0.9
    gphash("index", "m.gph", "photos", "-o", "p.gphash", cwd=photos)
    found = told("search", "p.gphash", "photos/red/3.png", "-k", "5", cwd=photos)
    assert classes(found["results"][0]["neighbours"]) == {"red"}
    with serving(photos / "p.gphash") as client:
        sent = {"picture": ("blue.png", (photos / "photos" / "blue" / "0.png").read_bytes(), "image/png")}
        answer = client.post("/search", files=sent, data={"k": "5"})
        assert answer.status_code == httpx.codes.OK, answer.text
        assert classes(answer.json()["hits"]) == {"blue"}


def test_a_ranking_on_the_command_line_and_in_the_service(photos):
    gphash("fit", "photos", "--descriptor", "mean-colour", "--bits", "8", "-o", "r.gph", cwd=photos)
    gphash("index", "r.gph", "photos", "-o", "r.gphash", cwd=photos)
    near = told("search", "r.gphash", "key:0", "-k", "60", "--ranking", "hamming", cwd=photos)["results"]
    near = near[0]["neighbours"]
    far = told("search", "r.gphash", "key:0", "-k", "60", "--ranking", "farthest", cwd=photos)["results"][0][
        "neighbours"
    ]
    assert far[0]["distance"] == near[-1]["distance"] > far[-1]["distance"] == 0
    with Collection.open(photos / "r.gphash") as collection:
        first = collection.search(collection.query(key=0), 1, ranking="farthest")[0]
        assert first.distance == far[0]["distance"]
    with serving(photos / "r.gphash") as client:
        answer = client.post("/search", json={"key": 0, "k": 1, "ranking": "farthest"})
        assert answer.status_code == httpx.codes.OK, answer.text
        assert answer.json()["hits"][0]["distance"] == far[0]["distance"]


def test_a_method_and_a_data_set(tmp_path):
    gphash("fit", "ring:train", "--method", "columns", "--bits", "2", "-o", "c.gph", cwd=tmp_path)
    assert isinstance(load(tmp_path / "c.gph"), Columns)
    assert told("evaluate", "c.gph", "ring:test", cwd=tmp_path)["results"]["hamming"]["map"] > 0.9
    gphash("index", "c.gph", "ring:train", "-o", "c.gphash", cwd=tmp_path)
    found = told("search", "c.gphash", "key:0", "-k", "10", cwd=tmp_path)
    assert classes(found["results"][0]["neighbours"]) == {"0"}


def test_a_kind_of_supervision(tmp_path):
    train, test = digits.load().train, digits.load().test
    rng = np.random.default_rng(0)
    i = rng.integers(0, train.n_rows, 3000)
    j, k = ([rng.choice(np.flatnonzero((train.y == train.y[row]) == alike)) for row in i] for alike in (True, False))
    keep = i != j
    triplets = Triplets(i[keep], np.asarray(j)[keep], np.asarray(k)[keep])
    hasher = GPHasher(**{**QUICK, "n_bits": 8}).fit(train.X, triplets)
    hasher.save(tmp_path / "t.gph")
    assert load(tmp_path / "t.gph").score(test.X, test.y) == hasher.score(test.X, test.y) > 0.5


def test_an_index_back_end(tmp_path):
    codes = np.arange(200, dtype=np.uint8)[:, None]
    Remembered.known["codes"] = HammingIndex.build(codes, n_bits=8)
    index = open_index("memory://codes")
    assert index.search(codes[:3], 1).ids[:, 0].tolist() == [0, 1, 2]
    assert index.search(codes[:1], 1, ranking="farthest").ids.tolist() == [[127]]


@pytest.mark.parametrize(("registry", "name"), [toy[:2] for toy in TOYS], ids=[toy[1] for toy in TOYS])
def test_every_kind_is_refused_by_name_when_it_is_not_known(registry, name):
    registry._things.pop(name)
    with pytest.raises(ValueError, match=f"'{name}'; give one of '"):
        registry.find(name)
    registry._things[name] = None
