"""Kinds of files to fuzz: how to make a small one, how to use one, and what it must answer by its own content."""

import contextlib
import hashlib
import json
import math
import sqlite3
import tempfile
import traceback
import warnings
import zlib
from pathlib import Path

import numpy as np
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, Normalizer

import gphash
from gphash import GPHasher, HammingIndex
from gphash.collection.collection import Collection
from gphash.collection.records import NoPictureError
from gphash.container import FormatError
from gphash.hashers import methods
from gphash.index import search as searching
from gphash.method import kernels
from gphash.method.hashing import HashFunction
from tests import digits, reference
from tests.collection import sources
from tests.fuzz import oracles, sealing
from tests.fuzz.oracles import WrongError, demand

ROWS = digits.X[100:107]


def random(seed, number):
    """The random numbers of a file."""
    return np.random.default_rng([seed, number])


def attempt(target, seed, number):
    """Make a file, use it, and say what came of it: "refused", "right", "wrong" or "error", and why."""
    content = target.spoil(random(seed, number))
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            target.use(content)
    except WrongError as error:
        return "wrong", str(error)
    except FormatError as error:
        return ("refused" if "fuzzed" in str(error) else "error"), repr(error)  # it must name the file
    except target.documented as error:
        return "refused", repr(error)
    except Exception as error:
        where = [f"{one.filename.rsplit('/', 1)[-1]}:{one.lineno}" for one in traceback.extract_tb(error.__traceback__)]
        return "error", f"{error!r} at {' '.join(where[-4:])}"
    return "right", ""


class Models:
    """Models of each family of methods."""

    documented = ()

    def __init__(self, folder):
        self.path, self.bases = folder / "fuzzed.gph", []
        X, y = digits.X[:80], digits.y[:80]
        small = {"n_bits": 5, "n_jobs": 1, "random_state": 0}
        for hasher in (
            GPHasher(n_inducing=12, n_starts=1, length_scale=0.9, signal_scale=4.0, **small),
            GPHasher(
                n_inducing=12, n_starts=1, max_sweeps=3, length_scale=0.9, signal_scale=4.0, codes="sampled", **small
            ),
            GPHasher(n_inducing=12, n_starts=1, length_scale=0.9, signal_scale=4.0, n_free_bits=2, **small),
            methods.METHODS.find("fasthash")(n_trees=4, depth=2, **small),
            methods.METHODS.find("itq")(**small),
            methods.METHODS.find("sdh")(n_inducing=12, length_scale=0.9, ridge=0.01, **small),
            methods.METHODS.find("spectral")(**small),
            methods.METHODS.find("classifier-codes")(n_inducing=12, length_scale=0.9, ridge=0.01, **small),
            make_pipeline(MinMaxScaler(), Normalizer(), PCA(9), methods.METHODS.find("itq")(**small)),
        ):
            self._keep(hasher.fit(X, y))
        quick = {"n_inducing": 12, "n_starts": 1, "max_sweeps": 3, "length_scale": 0.9, "signal_scale": 4.0}
        self._keep(GPHasher(**quick, **small).fit(X, digits.pairs(80, 400)))

    def _keep(self, hasher):
        gphash.save(hasher, self.path, {"data": "digits", "rows": 80})
        self.bases.append(sealing.parse(self.path.read_bytes()))

    def whole(self):
        """Models without any fault."""
        return [sealing.seal(base) for base in self.bases]

    def spoil(self, rng):
        """A model with some faults."""
        return sealing.spoilt(sealing.pick(rng, self.bases), rng)

    def use(self, content):
        """Load it and encode rows with it."""
        self.path.write_bytes(content)
        hasher = gphash.load(self.path)
        parts = sealing.parse(content)
        X = ROWS[:, : hasher.n_features_in_]
        if hasher.n_features_in_ > 10**5:  # which is no fault in itself
            return
        if hasher.n_features_in_ > X.shape[1]:
            X = np.pad(X, [(0, 0), (0, hasher.n_features_in_ - X.shape[1])])
        hasher.__dict__.pop("feature_names_in_", None)
        bits = hasher.transform(X)
        demand(bits.shape == (len(X), hasher.n_bits) and hasher.n_bits <= 1024, "codes of another length")
        np.testing.assert_array_equal(hasher.encode(X), np.packbits(bits, axis=1))
        np.testing.assert_array_equal(hasher.encode(X[2:3]), np.packbits(bits[2:3], axis=1))
        margins, tolerance = oracles.margins(parts, X)
        demand(bool(np.isfinite(margins).all()), "margins that are not finite")
        sure = np.abs(margins) > tolerance
        demand(bool((bits == (margins >= 0))[sure].all()), "codes are not those of the model's own numbers")
        if hasattr(hasher, "bit_probabilities"):
            demand(hasher.hash_function_.has_probabilities, "a Gaussian process without probabilities was opened")
            chances = hasher.bit_probabilities(X)
            demand(bool(((chances >= 0) & (chances <= 1)).all()), "probabilities outside of 0 to 1, or NaN")
            if isinstance(hasher.hash_function_, HashFunction):
                np.testing.assert_array_equal(chances >= 0.5, bits == 1)


class Indexes:
    """Indexes of codes of one word and of several."""

    documented = ()

    def __init__(self, folder):
        self.path, self.bases = folder / "fuzzed.index", []
        for n_bits in (6, 12, 20, 40, 70):
            index = HammingIndex.build(codes(n_bits, 40), ids_of(n_bits, 40), n_bits=n_bits, model="0" * 64)
            index.save(self.path)
            self.bases.append(sealing.parse(self.path.read_bytes()))

    def whole(self):
        """Indexes without any fault."""
        return [sealing.seal(base) for base in self.bases]

    def spoil(self, rng):
        """An index with some faults."""
        return sealing.spoilt(sealing.pick(rng, self.bases), rng)

    def use(self, content):
        """Open it and search in it."""
        self.path.write_bytes(content)
        index = HammingIndex.open(self.path)
        check_searches(index, oracles.items(sealing.parse(content)), index.n_bits)


class Collections:
    """Files of a small collection, one of which is spoilt; what it tells is what it was made with, or what it says."""

    documented = (FileNotFoundError,)
    vectors = None

    def __init__(self, folder, keys="texts"):
        self.path, self.n = folder / "fuzzed.gphash", 30
        whole = sources.of_digits(self.n + 4)
        hasher = methods.METHODS.find("itq")(n_bits=12, random_state=0).fit(whole.X, whole.y)
        said = {"title": [f"title {row}" for row in range(self.n)], "price": [row / 4 for row in range(self.n)]}
        if keys == "texts":
            said["key"] = [f"key {row}" for row in range(self.n)]
            said["tags"] = [["a", "b"][: row % 3] for row in range(self.n)]
        else:
            said |= {"label": [["a", "b", None][row % 3] for row in range(self.n)]}
        source = whole._replace(X=whole.X[: self.n], y=None, classes=(), images=whole.images[: self.n])
        self.X = whole.X[:3]
        with Collection.create(self.path, hasher, source, said, writable=True, vectors=self.vectors) as made:
            more = {"title": ["late"] * 4} | ({"key": [f"late {row}" for row in range(4)]} if keys == "texts" else {})
            added = made.add(whole.X[self.n :], more)
            made.remove([added[1], made.item(added[0]).key])
            made.remove(["key 3" if keys == "texts" else 3])
        self.files = {file: file.read_bytes() for file in self.path.rglob("*") if file.is_file()}
        self.known = self.told()

    def restore(self):
        """Put all files back."""
        for file, content in self.files.items():
            file.write_bytes(content)
        for file in self.path.rglob("*"):
            if file.is_file() and file not in self.files:
                file.unlink()

    def told(self):
        """All that the collection tells: every item by its key, what is found, and pictures."""
        with Collection.open(self.path) as collection:
            rows = collection._store.items.all_rows()
            items = {item.key: item for item in collection.items([row.key for row in rows])}
            found = [[(hit.key, hit.bits, hit.distance) for hit in hits] for hits in collection.search(self.X, 100)]
            for hits in (
                collection.search(self.X[0], 50, where="price < ?", params=[5]),
                collection.search(self.X[0], 50, label="a") if "a" in collection.classes else [],
            ):
                for hit in hits:
                    demand(hit[:5] == items[hit.key], f"{hit.key!r} is another item where it is found")
            for bucket in collection.buckets(3):
                demand(set(bucket.keys) <= set(items), "a bucket has keys of nobody")
            shown = {}
            for key in list(items)[::7]:
                try:
                    shown[key] = collection.picture(key).content
                except NoPictureError:
                    shown[key] = None
        return items, found, shown


class Manifests(Collections):
    """`collection.json`, with a checksum that fits."""

    def whole(self):
        """The file without any fault."""
        return [self.files[self.path / "collection.json"]]

    def spoil(self, rng):
        """A manifest with some faults."""
        told = json.loads(self.whole()[0])
        del told["checksum"]
        for _ in range(rng.choice([1, 1, 2])):
            if rng.random() < 0.1:
                told["name"] = "another"  # which is no fault
            else:
                sealing.spoil_tree(told, rng)
        text = json.dumps(told | {"checksum": hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()})
        return sealing.flipped(text.encode(), rng) if rng.random() < 0.1 else text.encode()

    def use(self, content):
        """Open the collection, and ask for everything."""
        self.restore()
        (self.path / "collection.json").write_bytes(content)
        items, found, _ = self.told()
        demand(items == self.known[0], "other items than those of the collection")
        told, before = json.loads(content), json.loads(self.whole()[0])
        if all(told[name] == before[name] for name in ("parts", "folded")):
            demand(found == self.known[1], "other items are found")
        for hits, known in zip(found, self.known[1], strict=True):  # of fewer parts, fewer are found
            distances = {key: distance for key, _, distance in known}
            demand(all(distances.get(key, distance) == distance for key, _, distance in hits), "another distance")
            demand(all(items[key].bits == bits for key, bits, _ in hits), "an item is found with another code")


class ItemFiles(Collections):
    """`items.sqlite`: bytes changed, or rows changed with marks that fit."""

    def whole(self):
        """The file without any fault."""
        return [self.files[self.path / "items.sqlite"]]

    def spoil(self, rng):
        """A file of items with some faults."""
        content = self.whole()[0]
        if rng.random() < 0.4:
            return sealing.flipped(content, rng)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "items.sqlite"
            file.write_bytes(content)
            connection = sqlite3.connect(file, isolation_level=None)
            for _ in range(rng.choice([1, 1, 2])):
                with contextlib.suppress(sqlite3.Error, OverflowError):
                    self._change(connection, rng)
            connection.close()
            return file.read_bytes()

    def _change(self, connection, rng):
        table = sealing.pick(rng, ["items", "items", "items", "pictures", "tags", "classes", "changes", "state"])
        names = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]
        ((n,),) = connection.execute(f"SELECT count(*) FROM {table}")
        first, place = names[0], int(rng.integers(max(n, 1)))
        ((which,),) = connection.execute(f"SELECT {first} FROM {table} LIMIT 1 OFFSET {place}").fetchall() or [(None,)]
        way, name = rng.random(), sealing.pick(rng, names)
        strange = [None, 0, 1, -1, 2**62, -(2**63), 1e300, "", "x", "a;b", ";a;", b"", b"abc", b"\xff\xff", b"\0\0"]
        if way < 0.1:
            connection.execute(f"DELETE FROM {table} WHERE {first} = ?", (which,))
        else:
            connection.execute(f"UPDATE {table} SET {name} = ? WHERE {first} = ?", (sealing.pick(rng, strange), which))
        if "mark" in names and name != "mark" and rng.random() < 0.6:  # seal it again
            told = [one for one in names if one not in ("mark", "place")]
            where = f"FROM {table} WHERE {first} = ?"
            for row in connection.execute(f"SELECT {', '.join(told)} {where}", (which,)).fetchall():
                mark = zlib.crc32(repr(row).encode())
                connection.execute(f"UPDATE {table} SET mark = ? WHERE {first} = ?", (mark, which))

    def use(self, content):
        """Open the collection, and ask for everything: what is told is what the file says, by its own rows."""
        self.restore()
        (self.path / "items.sqlite").write_bytes(content)
        items, found, shown = self.told()
        connection = sqlite3.connect(self.path / "items.sqlite")
        connection.row_factory = sqlite3.Row
        rows = {row["key"]: row for row in connection.execute("SELECT * FROM items")}
        pictures = {row["number"] for row in connection.execute("SELECT number FROM pictures")}
        connection.close()
        demand(sorted(rows) == sorted(items), "other keys than those of the file")
        for key, item in items.items():
            row = rows[key]
            told = {name: row[name] for name in ("title", "price", "text", "link") if row[name] is not None}
            demand({name: item.values.get(name) for name in told} == told, f"{key!r} has other values")
            bits = "".join(map(str, np.unpackbits(np.frombuffer(row["code"], np.uint8))[:12]))
            demand(item.bits == bits, f"{key!r} has another code")
        for hits in found:
            demand(all(items[key].bits == bits for key, bits, _ in hits), "an item is found with another code")
        for key, picture in shown.items():
            demand(picture is None or rows[key]["number"] in pictures, "a picture of nobody")


class VectorFiles(Collections):
    """`parts/0000.vectors`, named by its new fingerprint, and often with marks of rows that fit."""

    vectors = "float16"

    def whole(self):
        """The file without any fault."""
        return [self.files[self.path / "parts/0000.vectors"]]

    def spoil(self, rng):
        """A file of vectors with some faults."""
        base = sealing.parse(self.whole()[0])
        if rng.random() < 0.4:
            return sealing.spoilt(base, rng)
        numbers, rows = base.arrays["numbers"].copy(), base.arrays["rows"].copy()
        for _ in range(rng.choice([1, 1, 3])):
            row, place = rng.integers(len(rows)), rng.integers(rows.shape[1])
            if rng.random() < 0.2:
                numbers[row] = sealing.pick(rng, [0, -1, 3, 7, 2**62, -(2**63)])
            else:
                rows[row, place] = sealing.pick(rng, [0, 1, 127, 128, 255])
            if rng.random() < 0.6:
                mark = zlib.crc32(numbers[row].tobytes() + rows[row, 4:].tobytes())
                rows[row, :4] = np.frombuffer(mark.to_bytes(4, "little"), np.uint8)
        return sealing.seal(base._replace(arrays={"numbers": numbers, "rows": rows}))

    def use(self, content):
        """Open the collection and re-rank: every score is that of the file's own row, and the best come first."""
        self.restore()
        (self.path / "parts/0000.vectors").write_bytes(content)
        with contextlib.suppress(ValueError, TypeError, LookupError, AttributeError, RecursionError):
            mark = sealing.parse(content).header["fingerprint"]
            told = json.loads(self.files[self.path / "collection.json"])
            told["parts"][0]["vectors_mark"] = mark
            del told["checksum"]
            checksum = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
            (self.path / "collection.json").write_text(json.dumps(told | {"checksum": checksum}))
        with Collection.open(self.path) as collection:
            found = collection.search(self.X, 20, rerank=100)
            numbers = collection._store.items.numbers([hit.key for hits in found for hit in hits])
        parts = sealing.parse(content)
        own = dict(zip(parts.arrays["numbers"].tolist(), parts.arrays["rows"], strict=True))
        for query, hits in zip(self.X.astype(np.float64), found, strict=True):
            demand([hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True), "another order")
            for hit in hits:
                if (row := own.get(numbers[hit.key])) is not None:
                    vector = row[8:].copy().view("<f2").astype(np.float64)
                    lengths = np.linalg.norm(vector) * np.linalg.norm(query)
                    wanted = vector @ query / lengths if lengths else 0.0
                    demand(abs(hit.score - wanted) < 1e-9, f"{hit.key!r} has the score {hit.score}, not {wanted}")


class Checkpoints:
    """Checkpoints before the first sweep, between sweeps, and at the end."""

    codes = "posterior"

    def __init__(self, folder):
        self.path, self.bases = folder / "fuzzed.checkpoint", []
        self.settings = digits.QUICK | {"n_bits": 4, "n_inducing": 10, "block_size": 32, "max_sweeps": 4, "n_jobs": 1}
        self.settings |= {"codes": self.codes}
        self.X, self.y = digits.X[:60], digits.y[:60]
        self.documented = ()
        self.expected = GPHasher(**self.settings).fit(self.X, self.y).fingerprint_
        for stop in (0, 2, 99):
            self.path.unlink(missing_ok=True)
            self._interrupted(stop)
            self.bases.append(sealing.parse(self.path.read_bytes()))
        self.run = self.bases[0].header["meta"]["run"]

    def _interrupted(self, stop):
        def callback(sweep):
            if sweep.number == max(stop, 1):
                raise KeyboardInterrupt

        from gphash.method.checkpoint import Keeper

        write, due = Keeper.write, stop == 0
        try:
            if due:  # what was chosen, and nothing else
                Keeper.write = lambda keeper: None if keeper.path.exists() else write(keeper)
            GPHasher(**self.settings).fit(self.X, self.y, checkpoint=self.path, callback=callback)
        except KeyboardInterrupt:
            pass
        finally:
            Keeper.write = write

    def whole(self):
        """Checkpoints without any fault."""
        return [sealing.seal(base) for base in self.bases]

    def spoil(self, rng):
        """A checkpoint with some faults, of the same run."""
        return sealing.spoilt(sealing.pick(rng, self.bases), rng)

    def use(self, content):
        """Go on with training."""
        self.path.write_bytes(content)
        try:
            hasher = GPHasher(**self.settings).fit(self.X, self.y, checkpoint=self.path)
        except ValueError as error:
            if "belongs to another run" in str(error):
                demand(sealing.parse(content).header["meta"].get("run") != self.run, "the run is the same")
                raise FormatError(str(error)) from error
            raise
        parts, function = sealing.parse(content), hasher.hash_function_
        if self.codes == "posterior":
            for name in ("directions", "offset"):
                demand(bool(np.isfinite(getattr(function, name)).all()), f"{name} that are not finite")
            function = function.classifier
        demand(np.array_equal(function.Z, parts.arrays["Z"]), "other inducing inputs than those of the checkpoint")
        kernel = parts.header["meta"]["kernel"]
        demand(kernels.to_meta(function.kernel) == kernel, "another kernel")
        spread = [] if function.uncertainty is None else [("uncertainty", function.uncertainty.columns)]
        for name, array in (("weights", function.weights), *spread):
            demand(bool(np.isfinite(array).all()), f"{name} that are not finite")
        chances = hasher.bit_probabilities(ROWS)
        demand(bool(((chances >= 0) & (chances <= 1)).all()), "probabilities outside of 0 to 1, or NaN")
        if any(oracles.same_but_for_sweeps(parts, base) for base in self.bases):
            demand(hasher.fingerprint_ == self.expected, "another model than without an interruption")


class SampledCheckpoints(Checkpoints):
    """The same while codes are sampled."""

    codes = "sampled"


KINDS = {
    "model": Models,
    "index": Indexes,
    "manifest": Manifests,
    "items": ItemFiles,
    "vectors": VectorFiles,
    "checkpoint": Checkpoints,
    "sampled checkpoint": SampledCheckpoints,
}


def codes(seed, n, n_bits=None):
    """Random packed codes, some of them equal; of `seed` bits if it is no seed."""
    n_bits = n_bits or (seed if seed in (6, 20, 40, 70) else 12)
    bits = np.random.default_rng(seed).integers(0, 2, (n, n_bits), dtype=np.uint8)
    bits[n // 2 :] = bits[: n - n // 2]
    return np.packbits(bits, axis=1)


def ids_of(seed, n):
    """Rows in order, shuffled numbers, or numbers far apart."""
    rng = np.random.default_rng(seed)
    return [np.arange(n), rng.permutation(n), rng.integers(-(2**62), 2**62, n)][seed % 3]


def check_searches(index, items, n_bits):
    """Whether every search, in numpy and compiled, finds what a look at all items finds."""
    for searching.scanner.compiled in (False, True):
        check_search(index, items, n_bits)


def check_search(index, items, n_bits):
    bits = np.array(list(items.values()), np.uint8).reshape(-1, n_bits)
    demand(index.n_bits == n_bits and len(index) == len(items), "another number of items")
    demand(index.ids.tolist() == sorted(items), "other ids")
    rng = np.random.default_rng(5)
    queries = np.vstack([bits[:1], rng.integers(0, 2, (2, n_bits), dtype=np.uint8)])
    near, ball = index.search(np.packbits(queries, axis=1), 7), index.within(np.packbits(queries, axis=1), n_bits // 3)
    chances = rng.random((len(queries), n_bits))
    expected = index.search_expected(chances, 7)
    for row, query in enumerate(queries):
        ranking = reference.hamming_ranking(bits, items, query)
        found = list(zip(near.distances[row].tolist(), near.ids[row].tolist(), strict=True))
        demand(found == ranking[:7], "the nearest items are others")
        some = slice(ball.offsets[row], ball.offsets[row + 1])
        found = list(zip(ball.distances[some].tolist(), ball.ids[some].tolist(), strict=True))
        demand(found == [one for one in ranking if one[0] <= n_bits // 3], "the items within a radius are others")
        likely = reference.expected_ranking(bits, items, chances[row])[:7]
        demand(expected.ids[row].tolist() == [id for _, id, _ in likely], "the likeliest items are others")
        distances = expected.distances[row].tolist()
        close = (math.isclose(a, b[2], abs_tol=1e-9) for a, b in zip(distances, likely, strict=True))
        demand(all(close), "expected distances are others")
    if items:
        some = list(items)[::5]
        demand(
            np.array_equal(index.codes_of(some), np.packbits(np.array([items[id] for id in some]), axis=1)),
            "codes of items are others",
        )
