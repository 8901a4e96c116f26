"""`Collection`: things to search in, and what is known of them."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.arrays import Floats
from gphash.collection import adding, arguments, asking, building, columns, conditions, reranking, showing
from gphash.collection.nearest import cut, judged
from gphash.collection.records import Bucket, Hit, Hits, Item, Picture, Query, is_relevant
from gphash.collection.rows import Key, Layout
from gphash.collection.stores import Location, Store, open_store
from gphash.collection.vectors import VectorKind
from gphash.data import pictures
from gphash.data.dataset import Progress
from gphash.data.descriptors import encoders
from gphash.data.descriptors.descriptor import PICTURES, Descriptor
from gphash.functions.model import Model
from gphash.index.rankings import RANKINGS, Ranking

if TYPE_CHECKING:
    from gphash.collection.duplicates import Duplicates

T = TypeVar("T")


class Collection:
    """Codes of things, the model that made them, and what is known of the things; made by `create` or `open`.

    It is a folder, or tables of PostgreSQL. Threads may share it: any number may search at once, and changes wait for
    each other. A search sees every item as it was before a change, or after it.
    """

    def __init__(self, store: Store, pictures_from: Path | None = None) -> None:
        self._store = store
        self._shown = showing.Shown(store, pictures_from)

    @classmethod
    def create(
        cls,
        path: Location,
        model: Any,
        X: Any,
        items: Any = None,
        *,
        encoder: Any = None,
        replace: bool = False,
        executor: Any = None,
        progress: Progress | None = None,
        n_jobs: int | None = -1,
        writable: bool = False,
        vectors: str | None = None,
        metric: str = "cosine",
    ) -> Self:
        """Encode rows, write them and what is known of them into a folder, and open it.

        Parameters
        ----------
        path
            The folder, such as "photos.gphash".
        model
            A fitted hasher, a pipeline of scikit-learn that ends in one, or the file of a model.
        X
            Rows [n, d], read a few at a time: float16 and int8 keep their type, files may be mapped and matrices sparse
            (scipy.sparse), and Arrow's tables and frames of polars stay where they are. Or texts, with an `encoder`; or
            what `gphash.data.sources.read` gives, with labels and pictures; or the path of a folder of blocks.
        items
            What is known of the rows: a DataFrame, a list of dicts, or a dict of lists. `key` tells items apart, a text
            or a whole number; 0, 1, … if there is none. `label` or `tags`, `title`, `text`, `link` and `picture`, the
            path of a file, are known to the page. All other columns can be used in conditions.
        encoder
            What made the rows, and describes what is searched for: the path of an ONNX model, a function of a list of
            texts, or something with a method `encode`.
        replace
            Whether a collection that is there may be replaced. Until the new one is whole, the old one stays.
        executor : dask.distributed.Client, address of a scheduler, or None
            Where a folder of blocks is encoded; None for this process.
        progress
            Called with the rows done and in all.
        n_jobs
            Threads that encode; −1 for all cores.
        writable
            Whether to open it for changes.
        vectors
            Whether to keep the rows as well, as "float16" or "int8", so that `search` can re-rank; None for codes only.
        metric
            What re-ranks: "cosine", or "dot" for the dot product.
        """
        kind = VectorKind.of(vectors, metric)
        pictures_from = building.create(path, model, X, items, encoder, replace, executor, progress, n_jobs, kind)
        return cls.open(path, writable=writable, pictures=pictures_from, encoder=encoder)

    @classmethod
    def open(
        cls,
        path: Location,
        *,
        writable: bool = False,
        pictures: Location | None = None,
        encoder: Any = None,
        condition_seconds: float | None = None,
    ) -> Self:
        """Open a collection.

        Parameters
        ----------
        path
            Its folder, or "postgresql://USER@HOST/DATABASE?collection=NAME".
        writable
            Whether items may be added and removed. There is one writer of a folder at a time; a second gets a
            LockedError.
        pictures
            The folder of the pictures. If None, the one that the collection names, but only if that is inside the
            collection, or right beside it: a collection may come from anywhere, and name any. A folder that is not
            used is `hidden_folder`.
        encoder
            The collection's own, if that is not where it was: as for `create`. Another one is refused.
        condition_seconds
            How long a condition may take, for those that come from strangers; None for as long as it needs.
        """
        store = open_store(path, writable)
        store.condition_seconds = condition_seconds
        try:
            if encoder is not None:
                encoders.hand_in(encoder, store.descriptor, store.name)
            return cls(store, None if pictures is None else Path(pictures))
        except BaseException:
            store.close()
            raise

    def close(self) -> None:
        """Let another writer open the collection."""
        self._store.close()

    def is_replaced(self) -> bool:
        """Whether another collection was put in its place; this one stays what it is until it is opened again."""
        return self._store.is_replaced()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        self._store.refresh()
        return len(self._store.index)

    def __repr__(self) -> str:
        return f"Collection({self.name!r}, {len(self):,} items, {self.n_bits} bits)"

    @property
    def index(self) -> Any:
        """The index of the codes, in which items have numbers."""
        return self._store.index

    @property
    def name(self) -> str:
        """The name that it was made with."""
        return self._store.name

    @property
    def model(self) -> Model:
        """The model that made the codes."""
        return self._store.model

    @property
    def descriptor(self) -> Descriptor | None:
        """How pictures or texts become rows, if they do."""
        return self._store.descriptor

    @property
    def n_bits(self) -> int:
        """Length of a code."""
        return self.model.n_bits

    @property
    def writable(self) -> bool:
        """Whether items may be added and removed."""
        return self._store.writable

    @property
    def layout(self) -> Layout:
        """The kind of the keys, and the columns that only this collection has, with their types."""
        return self._store.items.layout

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that a condition may name."""
        return tuple(self.layout.names)

    @property
    def vectors(self) -> VectorKind | None:
        """How rows are kept beside their codes, and what re-ranks; None if they are not."""
        return self.layout.vectors

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of all labels and tags."""
        return self._store.items.classes()

    @property
    def has_pictures(self) -> bool:
        """Whether some item may have a picture."""
        return self._shown.has_pictures()

    @property
    def hidden_folder(self) -> Path | None:
        """A folder of pictures that the collection names, but that is not shown as nobody gave it to `open`."""
        return self._shown.hidden

    def encode(self, features: ArrayLike) -> tuple[NDArray[np.uint8], Floats | None]:
        """Codes of rows [n, d], packed uint8 [n, ⌈n_bits/8⌉], and P(bit = 1), float64 [n, n_bits].

        The probabilities are None if the method has none.
        """
        rows = self.model.check_rows(features, "features")
        return self.model.encode(rows), self.model.bit_probabilities(rows) if self.model.has_probabilities else None

    def describe(self, given: bytes | Location, *, max_pixels: int = pictures.MAX_PIXELS) -> NDArray[np.float32]:
        """A picture, the content of its file or its path, or a text as a row that the model takes, [d].

        Which of both it is, the collection's `descriptor` decides. A PictureError says why a picture cannot be
        described, or has too many pixels; a MissingEncoderError that the encoder has to be given to `open`.
        """
        takes = PICTURES if self.descriptor is None else self.descriptor.takes
        return asking.described(self.descriptor, takes, given, max_pixels)

    def query(
        self,
        *,
        features: ArrayLike | None = None,
        picture: bytes | Location | None = None,
        text: str | None = None,
        key: Key | None = None,
        code: ArrayLike | str | None = None,
        certainty: bool = True,
    ) -> Query:
        """What to search for; give exactly one of the first five.

        Parameters
        ----------
        features
            One row, [d].
        picture, text
            The content of a picture's file, or its path; or a text, if the collection's encoder takes texts.
        key
            Of an item of the collection. It keeps its stored code; its probabilities are those of its picture or
            text, if there is one.
        code
            Packed, uint8 [bytes], or zeros and ones as a text.
        certainty
            Whether to compute probabilities of its bits and classes; ranking by Hamming distance needs none.
        """
        name, given = asking.one_of(features=features, picture=picture, text=text, key=key, code=code)
        if name == "key":
            row = self._shown.row(columns.check_key(given, self.layout))
            query = asking.from_item(row, self.model, self.descriptor, self._shown, certainty)
            kept = None if self.vectors is None else reranking.kept(self._store, self._shown, row.key)
            return query._replace(features=kept)
        if name == "code":
            return Query(arguments.code(given, self.n_bits), None)
        rows = self.model.check_rows(asking.given_row(self.descriptor, self.model, name, given), name)
        return asking.from_row(rows, self.model, certainty)

    def search(
        self,
        query: Query | Sequence[Query] | ArrayLike,
        k: int = 10,
        *,
        where: str | None = None,
        params: Sequence[Any] = (),
        label: str | None = None,
        ranking: str | None = None,
        radius: int | None = None,
        min_probability: float | None = None,
        precision: float | None = None,
        recall: float | None = None,
        rerank: int | None = None,
    ) -> Any:
        """The k nearest items, ordered by distance, or by how probably they are similar.

        Parameters
        ----------
        query
            What `query` gave, or a row [d]; or several queries, or rows [n, d]. An item that is the query is left out.
        k
            How many at most.
        where, params
            Only items for which a condition holds, such as "price < ? and label = ?", and a value for every ? in it.
        label
            Only items with this label or tag.
        ranking
            One of `RANKINGS`: "similarity", the most probably similar first, for a model of GPHasher; "expected" for a
            query with probabilities; or "hamming". If None, the first if the model allows it, else the last.
        radius
            Only items whose codes differ from the query's in at most so many bits.
        min_probability
            Of the items found, only those that are similar with at least this probability.
        precision, recall
            Only as many items that in the mean this share of them is similar, or this share of what is similar found.
        rerank
            Order so many candidates of the ranking by their vectors' cosine, if the collection was made with `vectors`.

        Returns
        -------
        Hits, which is a list of Hit, or such a list for each of several queries or rows
        """
        self._store.refresh()  # another model may have made it anew
        k, radius = arguments.whole("k", k, 1), None if radius is None else arguments.whole("radius", radius, 0)
        by, cuts = arguments.ranking_of(ranking, self.model), (min_probability, precision, recall)
        arguments.check_promise(*cuts, by, self.model)
        rerank = arguments.check_rerank(rerank, k, cuts[1:] != (None, None), self.layout)
        if label is not None:
            arguments.check_label(label, self.classes)
        condition, (asked, one) = arguments.condition(where, params, self.layout), arguments.asked(query)

        def read() -> list[Hits]:
            # Encoded here: the collection may have been made anew, with another model.
            queries = arguments.queries(asked, by, self)
            found = self._find(queries, k, condition, label, RANKINGS[by].of(self.model), radius, rerank)
            return [cut(self.model.trust_, *both, k, *cuts) for both in zip(queries, found, strict=True)]

        found = self._store.steady(read)
        return found[0] if one else found

    def _find(
        self,
        queries: list[Query],
        k: int,
        condition: conditions.Condition | None,
        label: str | None,
        ranking: Ranking,
        radius: int | None,
        rerank: int | None,
    ) -> list[list[Hit]]:
        own = any(query.key is not None for query in queries)
        nearest = self._store.nearest(queries, (rerank or k) + own, ranking, radius, condition, label)
        asked = zip(queries, nearest, strict=True)
        found = [reranking.ordered(self._store, query, some, rerank and k + own) for query, some in asked]
        seen = self._shown.items({number for numbers, *_ in found for number in numbers})
        answer = []
        for query, each in zip(queries, found, strict=True):
            hits = []
            for number, cost, score in zip(*each, strict=True):
                row, item = seen[number]  # a KeyError if it was removed meanwhile
                if label is not None and label not in row.labels:
                    raise KeyError(number)
                if query.key is None or item.key != query.key:
                    hits.append(Hit(*item, cost, is_relevant(query.labels, row), score=score))
            hits = hits if rerank is None else reranking.by_score(hits)
            answer.append(judged(self.model.reader_, query, hits[:k], ranking))
        return answer

    def items(self, keys: Iterable[Key]) -> list[Item]:
        """Items by their keys, in that order; an UnknownItemError names one that is not there."""
        if isinstance(keys, str):
            raise ValueError(f"keys={keys!r}; give a list of keys.")
        return self._shown.by_keys([columns.check_key(key, self.layout) for key in keys])

    def item(self, key: Key) -> Item:
        """An item by its key; an UnknownItemError if there is none."""
        return self.items([key])[0]

    def picture(self, key: Key, *, max_pixels: int = pictures.MAX_PIXELS) -> Picture:
        """The picture of an item, in a form that browsers show.

        JPEG, PNG, WebP and GIF come as they are; pixels and other formats as PNG of at most 1,024 pixels on each side.
        A NoPictureError says that the item has no picture, that its file is gone, or has too many pixels for a PNG.
        """
        return self._shown.picture(self._shown.row(columns.check_key(key, self.layout)), max_pixels)

    def duplicates(
        self, radius: int | None = None, *, min_probability: float | None = None, min_cosine: float | None = None
    ) -> "Duplicates":
        """Items that are near each other, as `clusters()` of keys, or as `pairs()`.

        They are if their codes differ in at most `radius` bits, if they are similar with at least this probability by
        their codes, and if the vectors that the collection keeps have at least this cosine; whatever is given counts.
        """
        from gphash.collection.duplicates import Duplicates  # compiled, which a search need not wait for

        self._store.refresh()
        return Duplicates(self._store, radius, min_probability, min_cosine)

    def buckets(self, n: int = 12, samples: int = 8) -> list[Bucket]:
        """The n codes that most items share, fullest first, with some keys of each."""
        return self._shown.fullest(arguments.whole("n", n, 1), arguments.whole("samples", samples, 0))

    def random_key(self, seed: int | None = None) -> Key:
        """The key of some item; an UnknownItemError if there are none."""
        return self._shown.random_key(seed)

    def add(
        self,
        X: Any = None,
        items: Any = None,
        *,
        pictures_of: Sequence[bytes | None] | None = None,
        max_pixels: int = pictures.MAX_PIXELS,
    ) -> list[Key]:
        """Add items, all of them or none, and return their keys; when this returns, they are on disk.

        Parameters
        ----------
        X
            Rows [n, d], or what `gphash.data.sources.read` gives; if None, the pictures are described, or the texts
            in `items`.
        items
            What is known of them, as for `create`. Keys must be new (KnownKeyError). If they are numbers, they can be
            left out: the next ones that were never used are taken.
        pictures_of
            The content of a picture's file for each, or None.
        max_pixels
            A larger picture is refused.
        """
        rows, contents = adding.prepare(self, X, items, pictures_of, max_pixels)
        numbers = self._store.add(rows, contents)
        return [number if row.key is None else row.key for number, row in zip(numbers, rows, strict=True)]

    def remove(self, keys: Iterable[Key]) -> None:
        """Remove items, all of them or none; an UnknownItemError names a key that is not there."""
        if isinstance(keys, str):
            raise ValueError(f"keys={keys!r}; give a list of keys.")
        asked = list(dict.fromkeys(columns.check_key(key, self.layout) for key in keys))
        with self._store.changing:
            self._store.remove(self._shown.numbers(asked))

    def compact(self) -> None:
        """Fold all changes into the parts of a folder; searches go on meanwhile."""
        self._store.compact()
