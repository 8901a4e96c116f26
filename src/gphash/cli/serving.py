"""The command that answers over HTTP: serve."""

import os
import shlex
import stat
import threading
import webbrowser
from pathlib import Path
from typing import Annotated

from gphash.cli import app, shown
from gphash.cli.app import Argument, Debug, Option, Quiet

READ, WRITE = "GPHASH_READ_TOKEN", "GPHASH_WRITE_TOKEN"
TOKEN_BYTES = 4096
OTHERS = stat.S_IRWXG | stat.S_IRWXO
PATIENCE = 3.0  # seconds of getting ready before a word is said


@app.command("gphash serve digits.index --open", interrupted=lambda given: "stopped.")
def serve(
    index: Annotated[Path, Argument(metavar="INDEX", help="An index, as gphash index writes it.", show_default=False)],
    host: Annotated[
        str, Option(help="Address to listen at; any but this machine's own asks for tokens.")
    ] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port to listen at; 0 takes a free one.")] = 8080,
    writable: Annotated[bool, Option("--writable", help="Let items be added and removed.")] = False,
    model: Annotated[
        Path | None,
        Option("--model", metavar="MODEL", help="Where the model is, if not where it was.", show_default=False),
    ] = None,
    pictures: app.Pictures = None,
    read_token_file: Annotated[
        Path | None,
        Option(metavar="FILE", help=f"File with the token that readers must show; else the environment's {READ}."),
    ] = None,
    write_token_file: Annotated[
        Path | None,
        Option(metavar="FILE", help=f"File with the token that writers must show; else the environment's {WRITE}."),
    ] = None,
    no_token: Annotated[
        bool, Option("--no-token", help="Listen at a public address although there is no token.")
    ] = False,
    allowed_host: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="A name by which the service may be called, if not any; repeatable."),
    ] = None,
    max_k: Annotated[int, Option(min=1, help="Most neighbours of a search.")] = 1000,
    max_body: Annotated[int, Option(min=1, help="Most bytes of a request.")] = 16_000_000,
    max_pixels: Annotated[
        int, Option(min=1, help="Most pixels of a picture; a JPEG may have twice as many.")
    ] = 25_000_000,
    max_requests: Annotated[int, Option(min=1, help="Most requests worked on at once.")] = 256,
    max_connections: Annotated[int, Option(min=1, help="Most clients connected at once.")] = 512,
    open_page: Annotated[bool, Option("--open", help="Open the page in the browser.")] = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Serve an index: a page, and JSON for programs."""
    from gphash.server import service
    from gphash.server import settings as choices
    from gphash.server.settings import Settings

    chosen = Settings(
        host=host,
        port=port,
        model=model,
        pictures=pictures,
        writable=writable,
        read_token=_token(read_token_file, READ),
        write_token=_token(write_token_file, WRITE),
        no_token=no_token,
        hosts=tuple(allowed_host) if allowed_host else None,
        max_k=max_k,
        max_body_bytes=max_body,
        max_picture_pixels=max_pixels,
        max_in_work=max_requests,
        max_connections=max_connections,
        log_requests=not quiet,
    )
    choices.check(chosen)
    service.require()
    if not index.is_file():
        raise ValueError(f"there is no index {str(index)!r}; gphash index makes one.")
    word = "getting ready: what is used for the first time is compiled"
    waiting = threading.Timer(PATIENCE, lambda: shown.say(word))
    waiting.daemon = True

    def tell(state: str, address: str) -> None:
        slow = waiting.finished.is_set()
        if state == "listening":
            if not quiet:
                shown.say(f"{index} at {address} (Ctrl-C stops it)")
                waiting.start()
        else:
            waiting.cancel()
            if slow and not quiet:
                shown.say("ready")
            if open_page:
                webbrowser.open(address)

    try:
        service.run(index, chosen, tell)
    finally:
        waiting.cancel()


def _token(path: Path | None, variable: str) -> str | None:
    """A token from a file, else from the environment; never from the command line, which other users can see."""
    if path is None:
        token = os.environ.get(variable)
        if token == "":
            raise ValueError(f"{variable} is set, but empty; give it a token, or unset it to ask for none.")
        return token
    with open(path, encoding="utf-8") as file:
        _check_private(path, os.fstat(file.fileno()).st_mode)
        token = file.read(TOKEN_BYTES + 1).strip()
    if not token or len(token) > TOKEN_BYTES or len(token.splitlines()) > 1:
        raise ValueError(
            f"{str(path)!r} is empty, or has more than one line; give a file with a token and nothing else."
        )
    return token


def _check_private(path: Path, mode: int) -> None:
    """Refuse a token that others on this machine can read; a pipe has no such permissions, nor has Windows."""
    if os.name == "posix" and stat.S_ISREG(mode) and mode & OTHERS:
        raise ValueError(
            f"{str(path)!r} has the mode {stat.S_IMODE(mode):03o}, so that others may use the token; "
            f"keep it to yourself: chmod 600 {shlex.quote(str(path))}"
        )
