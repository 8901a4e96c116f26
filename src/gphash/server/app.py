"""The application: routes, and where their work is done.

Searches that take microseconds are done where they arrive, in the thread of the event loop. Whatever may take longer
goes to one of three small pools: pictures to be described, of which so many may wait, pictures to be looked at, and
everything else.
"""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Annotated, Any, TypeAlias, TypeVar

from fastapi import FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from gphash.gallery.gallery import Gallery
from gphash.gallery.records import Neighbour
from gphash.gallery.records import Query as Asked
from gphash.index import ranking
from gphash.server import answers, assets, bodies, failures, logs, questions, schemas
from gphash.server.edge import Edge
from gphash.server.failures import Failure
from gphash.server.metrics import CONTENT_TYPE, Metrics
from gphash.server.questions import EncodeForm, EncodeJson, ItemForm, ItemJson, Options, SearchForm, SearchJson
from gphash.server.settings import Settings, check
from gphash.server.shelf import Shelf, warm
from gphash.version import __version__

Application: TypeAlias = FastAPI
T = TypeVar("T")

WORKERS = 2
SMALL_BODY = 1 << 16  # bytes that are read and checked in no time
MAX_BUCKETS, MAX_SAMPLES = 200, 100

Id = Annotated[questions.Whole, Path(ge=-(2**63), le=2**63 - 1)]


class Service:
    """What all routes share.

    Parameters
    ----------
    path, settings
        As for `create_app`.
    """

    def __init__(self, path: str | os.PathLike[str], settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics(lambda: len(self.shelf.gallery))
        self.shelf = Shelf(path, settings.model, settings.writable, self.metrics.reload, settings.pictures)
        self.seek = _constant() if settings.search_removed else answers.seek
        self.state = "loading"
        self.when_ready: Callable[[], None] = lambda: None
        self._work = ThreadPoolExecutor(WORKERS, "gphash-work")
        self._pictures = ThreadPoolExecutor(WORKERS, "gphash-pictures")
        self._describe = ThreadPoolExecutor(settings.upload_threads, "gphash-describe")
        self.is_compiling = False
        self._uploads = 0
        self._unfinished: set[Future[Any]] = set()

    @contextlib.asynccontextmanager
    async def life(self, _: FastAPI) -> AsyncIterator[None]:
        """From the beginning to the end of the application."""
        tasks: set[asyncio.Task[Any]] = {asyncio.create_task(self._warm())}
        if self.settings.watch_seconds and not self.settings.writable:
            tasks.add(asyncio.create_task(self.shelf.watch(self.settings.watch_seconds)))
        loop = asyncio.get_running_loop()

        def reload() -> None:
            task = loop.create_task(self.shelf.reload("SIGHUP"))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        # Only the main thread of a process that has such signals can hear them.
        if hasattr(signal, "SIGHUP") and threading.current_thread() is threading.main_thread():
            loop.add_signal_handler(signal.SIGHUP, reload)
        try:
            yield
        finally:
            self.state = "stopping"
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for pool in (self._work, self._pictures, self._describe):
                pool.shutdown(wait=False, cancel_futures=True)
            # Threads that outlast the time for finishing still use the gallery; it ends with the process.
            if not self.n_unfinished:
                self.shelf.close()

    @property
    def n_unfinished(self) -> int:
        """How many threads are at work."""
        return len(self._unfinished)

    async def _warm(self) -> None:
        with self.shelf.lease() as gallery:
            try:
                await self.work(lambda: warm(gallery))
            except Exception as error:
                logs.crash("warming up failed", error)
                self.state = "failed"
                return
            if self.state == "loading":
                self.state = "ready"
                self.when_ready()
            self._compile(gallery)

    def _compile(self, gallery: Gallery) -> None:
        """Get the compiled search ready; searches are in numpy until it is, and a stop does not wait for it."""

        def compile_search() -> None:
            try:
                gallery.index.warm()
            except Exception as error:
                logs.crash("compiling the search failed", error)
            self.is_compiling = False

        self.is_compiling = True
        threading.Thread(target=compile_search, name="gphash-compile", daemon=True).start()

    async def work(self, task: Callable[[], T]) -> T:
        """Do something that takes a while."""
        return await self._hand(self._work, task)

    async def look(self, task: Callable[[], T]) -> T:
        """Do something that fetches a picture."""
        return await self._hand(self._pictures, task)

    @contextlib.asynccontextmanager
    async def form(self, request: Request) -> AsyncIterator[bodies.Form]:
        """A form with a picture, which takes a place in the queue when all of it has come."""
        body = await bodies.read(request, self.settings, self.settings.max_body_bytes)
        if self._uploads >= self.settings.upload_threads + self.settings.upload_queue:
            self.metrics.busy("uploads")
            raise failures.busy("too_many_uploads", 429, "too many pictures are waiting; try again in a moment.")
        self._uploads += 1
        try:
            yield await bodies.form_of(request, body, self.settings)
        finally:
            self._uploads -= 1

    async def describe(self, task: Callable[[], T]) -> T:
        """Do something with a picture."""
        return await self._hand(self._describe, task)

    async def _hand(self, pool: ThreadPoolExecutor, task: Callable[[], T]) -> T:
        future = pool.submit(task)
        self._unfinished.add(future)
        future.add_done_callback(self._unfinished.discard)
        return await asyncio.wrap_future(future)


class _Described(FastAPI):
    """An application whose description says which tokens are wanted."""

    def openapi(self) -> dict[str, Any]:
        """The description."""
        if not self.openapi_schema:
            schemas.secure(super().openapi(), self.state.service.settings)
        return super().openapi()


def create_app(gallery_path: str | os.PathLike[str], settings: Settings) -> FastAPI:
    """The service as an application; see `service.create_app`."""
    check(settings)
    service = Service(gallery_path, settings)
    app = _Described(
        title="gphash",
        version=__version__,
        summary="Search among short binary codes.",
        docs_url=None,  # it would fetch its scripts from elsewhere
        redoc_url=None,
        lifespan=service.life,
        exception_handlers={HTTPException: _http_error, RequestValidationError: _bad_parameter},
    )
    app.add_middleware(
        Edge, settings=settings, metrics=service.metrics, is_stopping=lambda: service.state == "stopping"
    )
    app.state.service = service
    _add_page(app)
    _add_state(app, service)
    _add_items(app, service)
    _add_questions(app, service)
    return app


def _add_page(app: FastAPI) -> None:
    files = assets.load()

    def send(name: str, request: Request) -> Response:
        if (asset := files.get(name)) is None:
            raise Failure(404, "not_found", "there is no such page.")
        headers = {"ETag": asset.etag, "Cache-Control": "no-cache", "Content-Security-Policy": assets.POLICY}
        if assets.is_known(request.headers.get("if-none-match"), asset.etag):
            return Response(status_code=304, headers=headers)
        return Response(asset.content, headers=headers, media_type=asset.media_type)

    @app.get("/", include_in_schema=False)
    async def page(request: Request) -> Response:
        return send("index.html", request)

    @app.get("/static/{file}", include_in_schema=False)
    async def static(file: str, request: Request) -> Response:
        return send(file, request)


def _add_state(app: FastAPI, service: Service) -> None:
    @app.get("/healthz", responses={200: {"model": schemas.State}})
    async def healthz() -> Response:
        """Whether the process lives."""
        return _json(b'{"status":"alive"}')

    @app.get("/readyz", responses={200: {"model": schemas.State}, 503: {"model": schemas.State}})
    async def readyz() -> Response:
        """Whether requests are welcome: not while loading or stopping."""
        content = f'{{"status":"{service.state}"}}'.encode()
        return _json(content, 200 if service.state == "ready" else 503)

    @app.get("/metrics", responses=schemas.responses(content={"text/plain": {"schema": {"type": "string"}}}))
    async def metrics() -> Response:
        """Counters for Prometheus."""
        return Response(service.metrics.text(), headers={"Content-Type": CONTENT_TYPE})


def _add_items(app: FastAPI, service: Service) -> None:
    settings, shelf = service.settings, service.shelf
    any_picture = {"image/*": {"schema": {"type": "string", "format": "binary"}}}

    @app.get("/collection", responses=schemas.responses(model=schemas.Collection))
    async def collection() -> Response:
        """What there is to search in."""
        with shelf.lease() as gallery:
            return _json(await service.work(lambda: answers.collection(gallery, settings)))

    @app.get("/collection/buckets", responses=schemas.responses(422, model=schemas.Buckets))
    async def buckets(
        n: Annotated[questions.Whole, Query(ge=1, le=MAX_BUCKETS)] = 12,
        samples: Annotated[questions.Whole, Query(ge=0, le=MAX_SAMPLES)] = 8,
    ) -> Response:
        """The fullest codes."""
        with shelf.lease() as gallery:
            return _json(await service.work(lambda: answers.buckets(gallery, n, samples)))

    @app.get("/items/random", responses=schemas.responses(404, model=schemas.Item))
    async def random_item() -> Response:
        """Some item."""
        with shelf.lease() as gallery:
            return _json(await service.work(lambda: answers.random_item(gallery)))

    @app.get("/items/{id}", responses=schemas.responses(404, 422, model=schemas.Item))
    async def item(id: Id) -> Response:
        """One item."""
        with shelf.lease() as gallery:
            return _json(await service.work(lambda: answers.item(gallery, id)))

    @app.get(
        "/items/{id}/image",
        responses={**schemas.responses(404, 422, content=any_picture), 304: {"description": "As you know it."}},
    )
    async def image(id: Id, request: Request) -> Response:
        """An item's picture."""
        with shelf.lease() as gallery:
            found = await service.look(lambda: answers.picture(gallery, id, settings))
        # An id may come to be another item's.
        headers = {"ETag": found.etag, "Cache-Control": "private, no-cache", "Content-Security-Policy": "sandbox"}
        if assets.is_known(request.headers.get("if-none-match"), found.etag):
            return Response(status_code=304, headers=headers)
        return Response(found.content, headers=headers, media_type=found.media_type)

    @app.delete("/items/{id}", status_code=204, responses=schemas.responses(404, 422, 507, status=204))
    async def remove(id: Id) -> Response:
        """Take an item out."""
        _check_writable(settings)
        with shelf.lease() as gallery:
            await service.work(lambda: answers.remove(gallery, id))
        return Response(status_code=204)


def _add_questions(app: FastAPI, service: Service) -> None:
    settings, shelf = service.settings, service.shelf
    taken = schemas.bodies(settings, answers.width(shelf.gallery))
    with_body = schemas.WITH_BODY

    async def read(request: Request, n_rows: int = 1) -> bytes:
        return await bodies.read_json(request, settings, n_rows * answers.width(shelf.gallery))

    @app.post(
        "/search", responses=schemas.responses(*with_body, 404, model=schemas.Found), openapi_extra=taken["search"]
    )
    async def search(request: Request) -> Response:
        """The nearest items of an item, of features, or of a picture."""
        if bodies.kind_of(request) == bodies.JSON:
            body = await read(request)
            with shelf.lease() as gallery:
                return _json(await _search(service, gallery, body))
        async with service.form(request) as form:
            options = questions.from_form(SearchForm, form.fields)
            with shelf.lease() as gallery:
                return _json(
                    await service.describe(
                        lambda: answers.search_picture(
                            gallery, form.picture, options, settings, service.seek, service.metrics.search
                        )
                    )
                )

    @app.post("/encode", responses=schemas.responses(*with_body, model=schemas.Codes), openapi_extra=taken["encode"])
    async def encode(request: Request) -> Response:
        """Codes of features or of a picture."""
        if bodies.kind_of(request) == bodies.JSON:
            body = await read(request, settings.max_rows)
            with shelf.lease() as gallery:
                width = answers.width(gallery)
                return _json(
                    await service.work(
                        lambda: answers.encode(gallery, questions.from_json(EncodeJson, body, width, settings.max_rows))
                    )
                )
        async with service.form(request) as form:
            questions.from_form(EncodeForm, form.fields)
            with shelf.lease() as gallery:
                return _json(await service.describe(lambda: answers.encode_picture(gallery, form.picture, settings)))

    @app.post(
        "/items",
        status_code=201,
        responses=schemas.responses(*with_body, 409, 507, status=201, model=schemas.Item),
        openapi_extra=taken["item"],
    )
    async def add(request: Request) -> Response:
        """Add an item; it is on disk when this answers."""
        _check_writable(settings)
        if bodies.kind_of(request) == bodies.JSON:
            body = await read(request)
            with shelf.lease() as gallery:
                width = answers.width(gallery)
                task = service.work(lambda: answers.add(gallery, questions.from_json(ItemJson, body, width)))
                return _json(await task, 201)
        async with service.form(request) as form:
            fields = questions.from_form(ItemForm, form.fields)
            with shelf.lease() as gallery:
                task = service.describe(lambda: answers.add_picture(gallery, form.picture, fields, settings))
                return _json(await task, 201)


async def _search(service: Service, gallery: Gallery, body: bytes) -> bytes:
    """A search by JSON: here if it is quick, else in the pool."""

    def read() -> SearchJson:
        return questions.from_json(SearchJson, body, answers.width(gallery))

    def ask(question: SearchJson) -> bytes:
        return answers.search(gallery, question, service.settings, service.seek, service.metrics.search)

    if len(body) > SMALL_BODY:
        return await service.work(lambda: ask(read()))
    question = read()
    if _is_quick(gallery, question):
        return ask(question)
    return await service.work(lambda: ask(question))


def _is_quick(gallery: Gallery, question: SearchJson) -> bool:
    """Whether a search takes less than handing it to another thread would be worth.

    It does not if the item's picture is described, if a label's items are gathered, if it may wait for a writer, or as
    long as the search is not compiled.
    """
    by_code = gallery.descriptor is None and question.id is not None and question.label is None
    return by_code and not gallery.writable and ranking.scanner.compiled


def _constant() -> answers.Seek:
    """A search that finds what it found first."""
    found: dict[int, list[Neighbour]] = {}

    def seek(gallery: Gallery, query: Asked, options: Options) -> list[Neighbour]:
        if options.k not in found:
            found[options.k] = answers.seek(gallery, query, options)
        return found[options.k]

    return seek


def _check_writable(settings: Settings) -> None:
    if not settings.writable:
        raise failures.read_only()


def _json(content: bytes, status: int = 200) -> Response:
    return Response(content, status, media_type=bodies.JSON)


def _failed(failure: Failure) -> Response:
    return Response(failure.content(), failure.status, failure.headers, media_type=bodies.JSON)


async def _http_error(_: Request, error: Any) -> Response:
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "invalid_request")
    headers = {name: "GET, HEAD" if value == "GET" else value for name, value in (error.headers or {}).items()}
    return _failed(Failure(error.status_code, code, f"{error.detail}.", headers=headers))


async def _bad_parameter(_: Request, error: Any) -> Response:
    first = error.errors()[0]
    argument = str(first["loc"][-1])
    text = first["msg"].removeprefix("Value error, ")
    return _failed(failures.wrong(f"{argument}: {text}.", argument))
