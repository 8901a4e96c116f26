"""Kinds of files to fuzz: how to make a small one, how to use one, and what it must answer by its own content."""

import hashlib
import io
import math
import struct
import traceback
import warnings

import numpy as np
from PIL import Image

import gphash
from gphash import GPHasher, HammingIndex
from gphash.collection.collection import Collection
from gphash.collection.records import NoPictureError
from gphash.container import FormatError
from gphash.hashers import methods
from gphash.index import search as searching
from gphash.method import kernels
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
            GPHasher(n_inducing=12, n_starts=1, max_sweeps=3, length_scale=0.9, signal_scale=4.0, **small),
            methods.METHODS.find("fasthash")(n_trees=4, depth=2, **small),
            methods.METHODS.find("itq")(**small),
            methods.METHODS.find("sdh")(n_inducing=12, length_scale=0.9, ridge=0.01, **small),
            methods.METHODS.find("spectral")(**small),
        ):
            hasher.fit(X, y).save(self.path, {"data": "digits", "rows": 80})
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
            demand(hasher.hash_function_.uncertainty is not None, "a Gaussian process without uncertainty was opened")
            chances = hasher.bit_probabilities(X)
            demand(bool(((chances >= 0) & (chances <= 1)).all()), "probabilities outside of 0 to 1, or NaN")
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


class Journals:
    """Journals of an index that is whole."""

    documented = ()

    def __init__(self, folder):
        self.path, self.n_bits = folder / "fuzzed.index", 12
        self.journal = folder / "fuzzed.index.journal"
        HammingIndex.build(codes(0, 30), n_bits=self.n_bits).save(self.path)
        self.index = self.path.read_bytes()
        self.items = oracles.items(sealing.parse(self.index))
        index = HammingIndex.open(self.path, writable=True)
        index.add(codes(1, 6), range(100, 106))
        index.remove([3, 101, 7])
        index.add(codes(2, 2), [3, -(2**62)])
        index.remove([104])
        index._files.close()
        self.base = self.journal.read_bytes()
        self.records = oracles.records(self.base)

    def whole(self):
        """The journal without any fault."""
        return [self.base, seal_journal(self.base[:76], self.records, {}, b"")]

    def spoil(self, rng):
        """A journal with some faults, chained and sealed again."""
        head, records = bytearray(self.base[:76]), [list(record) for record in self.records]
        slot, tail = {}, b""
        for _ in range(rng.choice([1, 1, 2, 3])):
            way = int(rng.integers(10))
            record = sealing.pick(rng, records) if records else [1, bytes(8)]
            if way == 0:
                head = bytearray(sealing.flipped(head, rng).ljust(76, b"\0")[:76])
            elif way == 1:
                record[0] = int(sealing.pick(rng, [0, 1, 2, 3, 2**31]))
            elif way == 2:
                record[1] = sealing.flipped(record[1], rng)
            elif way == 3:
                count = sealing.pick(rng, [0, 1, 2, 7, 2**31, 2**60, 2**61 + 1, 2**63, 2**64 - 1])
                record[1] = count.to_bytes(8, "little") + record[1][8:]
            elif way == 4 and records:
                records.remove(record)
            elif way == 5:
                records.insert(int(rng.integers(len(records) + 1)), list(record))
            elif way == 6:
                rng.shuffle(records)
            elif way == 7:
                ids = np.array(sealing.pick(rng, [[0, 0], [5], [100, 101], [2**62], [102], [-1], []]), "<i8")
                kind = int(rng.integers(1, 3))
                some = codes(int(rng.integers(100)), len(ids)).tobytes() if kind == 1 else b""
                if rng.random() < 0.3 and some:
                    some = sealing.flipped(some, rng)
                records.append([kind, len(ids).to_bytes(8, "little") + ids.tobytes() + some])
            elif way == 8:
                name = sealing.pick(rng, ["number", "length", "chain", "both"])
                slot[name] = sealing.pick(rng, [0, 1, 2, 100, 4095, 4097, 2**32, 2**63, 2**64 - 1])
            else:
                tail = rng.bytes(int(rng.integers(200)))
        return seal_journal(bytes(head), records, slot, tail, flip=rng if rng.random() < 0.1 else None)

    def use(self, content):
        """Open the index with it to be read, then to be written, change something, and open it once more."""
        self.path.write_bytes(self.index)
        self.journal.write_bytes(content)
        index = HammingIndex.open(self.path)
        expected = oracles.replayed(self.items, content, self.n_bits, self.index)
        check_searches(index, expected, self.n_bits)
        with HammingIndex.open(self.path, writable=True) as writer:
            writer.add(codes(9, 1), [77_777])
            writer.remove([77_777, 88_888])
        check_searches(HammingIndex.open(self.path), expected, self.n_bits)
        demand(sorted(one.name for one in self.path.parent.iterdir()) == ["fuzzed.index"], "files were left behind")


class Items:
    """Files of items, with labels and pixels, with tags, and with names of pictures."""

    documented = (FileNotFoundError, PermissionError)

    def __init__(self, folder):
        self.path = folder / "fuzzed.index"
        self.items = folder / "fuzzed.index.items"
        whole = sources.of_digits(30)
        model = folder / "fuzzed-model.gph"
        methods.METHODS.find("itq")(n_bits=8, random_state=0).fit(whole.X, whole.y).save(model)
        coloured = np.repeat(whole.images[..., None], 3, axis=3)
        tags = np.stack([whole.y % 2 == 0, whole.y >= 5], axis=1).astype(np.uint8)
        self.bases = []
        for source in (
            whole,
            whole._replace(y=tags, classes=("even", "large"), images=coloured),
            sources.folder_of_pictures(folder / "pictures"),
        ):
            Collection.build(self.path, model, source).close()
            self.bases.append(sealing.parse(self.items.read_bytes()))
        self.index = self.path.read_bytes()  # the same codes in all
        self.known = oracles.items(sealing.parse(self.index))

    def whole(self):
        """Files without any fault."""
        return [sealing.seal(base) for base in self.bases]

    def spoil(self, rng):
        """A file of items with some faults."""
        return sealing.spoilt(sealing.pick(rng, self.bases), rng)

    def use(self, content):
        """Open the collection, and ask for items, labels, pictures and neighbours."""
        self.path.write_bytes(self.index)
        self.items.write_bytes(content)
        self.items.chmod(0o644)
        with Collection.open(self.path) as collection:
            labels = oracles.labels(sealing.parse(content))
            for id in self.known:
                demand(collection.item(id).labels == labels.get(id, ()), f"item {id} has other labels")
            first = "".join(map(str, self.known[0]))
            for name in collection.classes[:3]:
                found = [
                    (one.distance, one.id) for one in collection.search(collection.query(code=first), 5, allowed=name)
                ]
                some = {id: bits for id, bits in self.known.items() if name in labels.get(id, ())}
                ranking = reference.hamming_ranking(list(some.values()), some, self.known[0]) if some else []
                demand(found == ranking[:5], f"items with the label {name!r} are others")
            for bucket in collection.buckets(3):
                demand(sum(bucket.labels.values()) >= 0, "labels of a bucket cannot be counted")
            for id in (0, 29):
                try:
                    shown = collection.picture(id).content
                except NoPictureError:
                    continue
                pixels = oracles.pixels(sealing.parse(content), id)
                same = pixels is None or np.array_equal(np.asarray(Image.open(io.BytesIO(shown))), pixels)
                demand(same, f"item {id} has another picture")


class Checkpoints:
    """Checkpoints before the first sweep, between sweeps, and at the end."""

    def __init__(self, folder):
        self.path, self.bases = folder / "fuzzed.checkpoint", []
        self.settings = digits.QUICK | {"n_bits": 4, "n_inducing": 10, "block_size": 32, "max_sweeps": 4, "n_jobs": 1}
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
        demand(np.array_equal(function.Z, parts.arrays["Z"]), "other inducing inputs than those of the checkpoint")
        kernel = parts.header["meta"]["kernel"]
        demand(kernels.to_meta(function.kernel) == kernel, "another kernel")
        for name in ("weights", "uncertainty"):
            demand(bool(np.isfinite(getattr(function, name)).all()), f"{name} that are not finite")
        chances = hasher.bit_probabilities(ROWS)
        demand(bool(((chances >= 0) & (chances <= 1)).all()), "probabilities outside of 0 to 1, or NaN")
        if any(oracles.same_but_for_sweeps(parts, base) for base in self.bases):
            demand(hasher.fingerprint_ == self.expected, "another model than without an interruption")


KINDS = {
    "model": Models,
    "index": Indexes,
    "items": Items,
    "journal": Journals,
    "checkpoint": Checkpoints,
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


def seal_journal(head, records, slot, tail, flip=None):
    """A journal of some records; of the slot, what is given differs."""
    chain = hashlib.sha256(head).digest()
    body = b""
    for kind, payload in records:
        content = struct.pack("<IQ", kind % 2**32, len(payload)) + payload
        if flip is not None:
            content = sealing.flipped(content, flip)
        chain = hashlib.sha256(chain + content).digest()
        body += content + chain
    number, length = slot.get("number", len(records)), slot.get("length", 4096 + len(body))
    sealed = struct.pack("<QQ32s", number, length, hashlib.sha256(head).digest() if "chain" in slot else chain)
    header = bytearray(4096)
    header[: len(head) + 32] = head + hashlib.sha256(head).digest()
    for place in (1024, 2048) if "both" in slot else (1024 + 1024 * (number % 2),):
        header[place : place + len(sealed) + 32] = sealed + hashlib.sha256(sealed).digest()
    return bytes(header) + body + tail


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
