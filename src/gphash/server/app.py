"""The application: routes, and where their work is done.

Searches that take microseconds are done where they arrive, in the thread of the event loop. Whatever may take longer
goes to one of three small pools: pictures to be described, of which so many may wait, pictures to be looked at, and
everything else.
"""

import asyncio
import contextlib
import functools
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus
from importlib import resources
from typing import Annotated, Any, TypeAlias, TypeVar

from fastapi import FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from gphash.collection import arguments
from gphash.collection.collection import Collection
from gphash.index import search as index_search
from gphash.index.hamming_index import HammingIndex
from gphash.server import answers, failures, logs, questions
from gphash.server.edge import READING_POSTS, SIGNS_OF_LIFE, Edge
from gphash.server.failures import Refusal
from gphash.server.metrics import CONTENT_TYPE, Metrics
from gphash.server.questions import JSON, EncodeForm, EncodeJson, ItemForm, ItemJson, PlainInt, SearchForm, SearchJson
from gphash.server.settings import ServiceSettings, check
from gphash.server.shelf import Shelf, compile_search, warm
from gphash.version import __version__

Application: TypeAlias = FastAPI
T = TypeVar("T")

WORKERS = 2
MANY = 100_000  # items, of which probabilities take long
SMALL_BODY = 1 << 16  # bytes that are read and checked in no time
NUMBER_BYTES, BESIDE_NUMBERS = 32, 1 << 18  # of JSON: at most 24 of a number say something, and those between
MAX_BUCKETS, MAX_SAMPLES = 200, 100
WHOLE = {"minimum": -(2**63), "maximum": 2**63 - 1}
ERRORS = (400, 401, 403, 413, 500, 503)
WITH_BODY = (408, 415, 422, 429)

# All that follows belongs to the key, also slashes: nothing comes after it.
PathKey = Annotated[str, Path(min_length=1, description="of an item, percent-encoded")]
BucketCount = Annotated[PlainInt, Query(ge=1, le=MAX_BUCKETS)]
SampleCount = Annotated[PlainInt, Query(ge=0, le=MAX_SAMPLES)]


class Service:
    """What all routes share."""

    def __init__(self, path: str | os.PathLike[str], settings: ServiceSettings) -> None:
        self.settings = settings
        self.unfinished: set[Future[Any]] = set()
        self.metrics = Metrics(lambda: len(self.shelf.collection))
        self.shelf = Shelf(path, settings, lambda result: self.metrics.reloads.labels(result).inc(), self.unfinished)
        self.state = "loading"
        self.when_ready: Callable[[], None] = lambda: None
        self.is_compiling = False
        self.at_work = ThreadPoolExecutor(WORKERS, "gphash-work")
        self.at_pictures = ThreadPoolExecutor(WORKERS, "gphash-pictures")
        self.at_uploads = ThreadPoolExecutor(settings.upload_threads, "gphash-describe")
        self._uploads = 0

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
            for pool in (self.at_work, self.at_pictures, self.at_uploads):
                pool.shutdown(wait=False, cancel_futures=True)
            # Threads that outlast the time for finishing still use the collection; it ends with the process.
            if not self.unfinished:
                self.shelf.collection.close()

    async def _warm(self) -> None:
        collection = self.shelf.collection
        try:
            await self.do(self.at_work, lambda: warm(collection))
        except Exception as error:
            logs.crash("warming up failed", error)
            self.state = "failed"
            return
        if self.state == "loading":
            self.state = "ready"
            self.when_ready()
        # Searches are in numpy until the compiled one is ready, and a stop does not wait for it.
        self.is_compiling = True
        threading.Thread(target=self._compile, args=[collection], name="gphash-compile", daemon=True).start()

    def _compile(self, collection: Collection) -> None:
        try:
            compile_search(collection)
        except Exception as error:
            logs.crash("compiling the search failed", error)
        self.is_compiling = False

    async def do(self, pool: ThreadPoolExecutor, task: Callable[[], T]) -> T:
        """Do something that takes a while."""
        future = pool.submit(task)
        self.unfinished.add(future)
        future.add_done_callback(self.unfinished.discard)
        return await asyncio.wrap_future(future)

    async def answer(self, make: Callable[..., bytes], *given: Any) -> Response:
        """What a thread makes of the current collection, and of what is given."""
        return _json(await self.do(self.at_work, functools.partial(make, self.shelf.collection, *given)))

    async def ask(
        self,
        request: Request,
        kinds: tuple[type[BaseModel], type[BaseModel]],
        make: Callable[..., bytes],
        n_rows: int = 1,
        status: int = 200,
    ) -> Response:
        """The answer to a body of JSON, or to a form with a picture, of these kinds."""
        in_json, in_form = kinds
        if questions.kind_of(request) == JSON:
            # Of so many rows: unpacked, a longer body could be very much larger.
            needed = BESIDE_NUMBERS + NUMBER_BYTES * n_rows * self.shelf.collection.model.n_features
            body = await questions.read(request, min(self.settings.max_body_bytes, needed))
            collection = self.shelf.collection
            read = functools.partial(questions.from_json, in_json, body, collection.model.n_features, n_rows)
            question = read() if in_json is SearchJson and len(body) <= SMALL_BODY else None
            # With nobody else at work, there is nobody to wait for.
            if isinstance(question, SearchJson) and not self.unfinished and _is_quick(collection, question):
                return _json(make(collection, question, b"", self.settings))
            made = await self.do(self.at_work, lambda: make(collection, question or read(), b"", self.settings))
            return _json(made, status)
        content = await questions.read(request, self.settings.max_body_bytes)
        # A picture takes a place in the queue when it has arrived completely.
        if self._uploads >= self.settings.upload_threads + self.settings.upload_queue:
            self.metrics.refused.labels("uploads").inc()
            raise failures.busy("too_many_uploads", 429, "too many pictures are waiting")
        self._uploads += 1
        try:
            picture, fields = await questions.form_of(request, content)
            question = questions.checked(in_form, fields)
            ask = functools.partial(make, self.shelf.collection, question, picture, self.settings)
            return _json(await self.do(self.at_uploads, ask), status)
        finally:
            self._uploads -= 1

    def check_writable(self) -> None:
        """Refuse changes if the service is read-only."""
        if not self.settings.writable:
            raise Refusal(403, "read_only", "the service is read-only; start it with --writable to change items.")


def create_app(path: str | os.PathLike[str], settings: ServiceSettings) -> FastAPI:
    """The service as an application; see `service.create_app`."""
    check(settings)
    service = Service(path, settings)
    app = FastAPI(
        title="gphash",
        version=__version__,
        summary="Search among short binary codes.",
        docs_url=None,  # FastAPI's own would fetch its scripts from elsewhere
        redoc_url=None,
        lifespan=service.life,
        exception_handlers={HTTPException: _http_error, RequestValidationError: _bad_parameter},
    )
    app.add_middleware(
        Edge, settings=settings, metrics=service.metrics, is_stopping=lambda: service.state == "stopping"
    )
    app.state.service = service
    _add_questions(app, service)
    _add_items(app, service)
    _add_page_and_state(app, service)
    _complete(app.openapi(), settings, service.shelf.collection.layout.keys)
    return app


def _add_page_and_state(app: FastAPI, service: Service) -> None:
    files = StaticFiles(directory=str(resources.files("gphash.server") / "page"))

    @app.get("/static/{file:path}", include_in_schema=False)
    async def static(file: str, request: Request) -> Response:
        response = await files.get_response(file, request.scope)
        response.headers["Cache-Control"] = "no-cache"
        return response

    @app.get("/", include_in_schema=False)
    async def page(request: Request) -> Response:
        return await static("index.html", request)

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        return await static("docs.html", request)

    @app.get("/healthz", responses={200: {"model": answers.StateAnswer}})
    async def healthz() -> Response:
        """Whether the process is alive."""
        return _json(b'{"status":"alive"}')

    @app.get("/readyz", responses={200: {"model": answers.StateAnswer}, 503: {"model": answers.StateAnswer}})
    async def readyz() -> Response:
        """Whether requests are welcome: not while loading or stopping."""
        content = f'{{"status":"{service.state}"}}'.encode()
        return _json(content, 200 if service.state == "ready" else 503)

    @app.get("/metrics", responses=_responses(content={"text/plain": {"schema": {"type": "string"}}}))
    async def metrics() -> Response:
        """Counters for Prometheus."""
        return Response(await service.do(service.at_work, service.metrics.text), headers={"Content-Type": CONTENT_TYPE})


def _add_items(app: FastAPI, service: Service) -> None:
    settings = service.settings
    any_picture = {"image/*": {"schema": {"type": "string", "format": "binary"}}}

    @app.get("/collection", responses=_responses(model=answers.CollectionAnswer))
    async def summary() -> Response:
        """What there is to search in."""
        return await service.answer(answers.summary, settings)

    @app.get("/collection/buckets", responses=_responses(422, model=answers.BucketsAnswer))
    async def buckets(n: BucketCount = 12, samples: SampleCount = 8) -> Response:
        """The fullest codes."""
        return await service.answer(answers.buckets, n, samples)

    @app.get("/collection/random", responses=_responses(404, model=answers.ItemAnswer))
    async def random_item() -> Response:
        """Some item."""
        return await service.answer(answers.random_item)

    @app.get("/items/{key:path}", responses=_responses(404, 422, model=answers.ItemAnswer))
    async def item(key: PathKey) -> Response:
        """One item."""
        return await service.answer(answers.item, key)

    @app.get(
        "/pictures/{key:path}",
        responses={**_responses(404, 422, content=any_picture), 304: {"description": "As you know it."}},
    )
    async def picture(key: PathKey, request: Request) -> Response:
        """An item's picture."""
        find = functools.partial(answers.picture, service.shelf.collection, key, settings)
        found, mark = await service.do(service.at_pictures, find)
        # Another item may get this key later.
        headers = {"ETag": mark, "Cache-Control": "private, no-cache", "Content-Security-Policy": "sandbox"}
        known = request.headers.get("if-none-match", "").split(",")
        if any(part.strip().removeprefix("W/") in ("*", mark) for part in known):
            return Response(status_code=304, headers=headers)
        return Response(found.content, headers=headers, media_type=found.media_type)

    @app.delete("/items/{key:path}", status_code=204, responses=_responses(404, 422, 507, status=204))
    async def remove(key: PathKey) -> Response:
        """Remove an item; that is on disk when this answers."""
        service.check_writable()
        await service.do(service.at_work, functools.partial(answers.remove, service.shelf.collection, key))
        return Response(status_code=204)


def _add_questions(app: FastAPI, service: Service) -> None:
    settings = service.settings
    taken = questions.bodies(settings, service.shelf.collection.model.n_features)
    find = functools.partial(answers.search, timed=service.metrics.search)

    @app.post(
        "/search", responses=_responses(*WITH_BODY, 404, model=answers.SearchAnswer), openapi_extra=taken["search"]
    )
    async def search(request: Request) -> Response:
        """The nearest items of an item, of features, of a text, or of a picture."""
        return await service.ask(request, (SearchJson, SearchForm), find)

    @app.post("/encode", responses=_responses(*WITH_BODY, model=answers.CodesAnswer), openapi_extra=taken["encode"])
    async def encode(request: Request) -> Response:
        """Codes of features or of a picture."""
        return await service.ask(request, (EncodeJson, EncodeForm), answers.encode, settings.max_rows)

    @app.post(
        "/items",
        status_code=201,
        responses=_responses(*WITH_BODY, 409, 507, status=201, model=answers.ItemAnswer),
        openapi_extra=taken["item"],
    )
    async def add(request: Request) -> Response:
        """Add an item; it is on disk when this answers."""
        service.check_writable()
        return await service.ask(request, (ItemJson, ItemForm), answers.add, status=201)


def _responses(*statuses: int, status: int = 200, **success: Any) -> dict[int | str, dict[str, Any]]:
    """For a route: what it answers on success, as `model` or `content`, and which errors it can give."""
    found: dict[int | str, dict[str, Any]] = {status: {"description": "Success.", **success}}
    for error in sorted({*ERRORS, *statuses}):
        found[error] = {"model": answers.ErrorAnswer, "description": HTTPStatus(error).phrase}
    return found


def _complete(described: dict[str, Any], settings: ServiceSettings, keys: str) -> None:
    """Enter into a description which token every route needs, and of which kind keys are in paths."""
    kind = {"type": "string", "minLength": 1} if keys == "text" else {"type": "integer"} | WHOLE
    described.setdefault("components", {})["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            reading = method == "get" or path in READING_POSTS
            token = settings.read_token if reading else settings.write_token or settings.read_token
            for parameter in operation.get("parameters", ()):
                parameter["schema"] = kind if parameter["in"] == "path" else parameter["schema"]
            operation["security"] = [{"token": []}] if token and path not in SIGNS_OF_LIFE else []


def _is_quick(collection: Collection, question: SearchJson) -> bool:
    """Whether a search takes less time than handing it to another thread.

    It does not if the item's picture may be described, if items that pass a filter are gathered, if ties are counted,
    if vectors are read, if it may wait for a writer or a database, or as long as the search is not compiled. Nothing
    is asked of the items to find out: that could take longer than the search.
    """
    filtered = question.label is not None or question.where is not None or question.ties or question.rerank is not None
    by_probability = arguments.ranking_of(question.ranking, collection.model) == "similarity"
    filtered |= by_probability and len(collection.index) > MANY
    by_code = question.key is not None and not filtered and collection.descriptor is None
    here = not collection.writable and isinstance(collection.index, HammingIndex)
    return by_code and here and index_search.scanner.compiled


def _json(content: bytes, status: int = 200) -> Response:
    return Response(content, status, media_type=JSON)


async def _http_error(_: Request, error: Any) -> Response:
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "invalid_request")
    headers = {name: "GET, HEAD" if value == "GET" else value for name, value in (error.headers or {}).items()}
    raise Refusal(error.status_code, code, f"{error.detail}.", headers=headers)


async def _bad_parameter(_: Request, error: Any) -> Response:
    first = error.errors()[0]
    raise questions.refusal(first["msg"], first["loc"][1:])  # without "path" or "query"
