"""The command that answers over HTTP: serve."""

import os
import shlex
import stat
import threading
import webbrowser
from pathlib import Path
from typing import Annotated

from typer import Option

from gphash.cli import app, options, shown
from gphash.cli.options import EncoderPath, Pictures, Place, whole

READ, WRITE = "GPHASH_READ_TOKEN", "GPHASH_WRITE_TOKEN"
TOKEN_BYTES = 4096
OTHERS = stat.S_IRWXG | stat.S_IRWXO
PATIENCE = 3.0  # seconds of getting ready before a word is said

TOKEN = "File with the token that {} must show; if not given, the environment's {}."

NoToken = Annotated[bool, Option("--no-token", help="Listen at a public address although there is no token.")]
Hosts = Annotated[list[str] | None, Option("--allowed-host", help="A name that the service answers to; repeatable.")]
MaxPixels = Annotated[int, whole("--max-pixels", help="Most pixels of a picture; a JPEG may have twice as many.")]


@app.command(
    "gphash serve digits.gphash --open",
    "gphash serve photos.gphash --pictures /data/photos --writable",
    "gphash serve 'postgresql://me@localhost/shop?collection=photos'",
    interrupted=lambda given: "stopped.",
    has_json=False,
)
def serve(
    path: Place,
    host: Annotated[str, Option(help="Address to listen at; any but this machine's own needs tokens.")] = "127.0.0.1",
    port: Annotated[int, whole("--port", least=0, most=65535, help="Port to listen at; 0 takes a free one.")] = 8080,
    writable: Annotated[bool, Option("--writable", help="Let items be added and removed.")] = False,
    pictures: Pictures = None,
    encoder: EncoderPath = None,
    read_token: Annotated[Path | None, Option("--read-token-file", help=TOKEN.format("readers", READ))] = None,
    write_token: Annotated[Path | None, Option("--write-token-file", help=TOKEN.format("writers", WRITE))] = None,
    no_token: NoToken = False,
    hosts: Hosts = None,
    max_k: Annotated[int, whole("--max-k", help="Most neighbours of a search.")] = 1000,
    max_rerank: Annotated[int, whole("--max-rerank", help="Most candidates that a search re-ranks.")] = 10_000,
    max_body_bytes: Annotated[int, whole("--max-body", help="Most bytes of a request.")] = 16_000_000,
    max_picture_pixels: MaxPixels = 25_000_000,
    max_in_work: Annotated[int, whole("--max-requests", help="Most requests worked on at once.")] = 256,
    max_connections: Annotated[int, whole("--max-connections", help="Most clients connected at once.")] = 512,
    open_page: Annotated[bool, Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Serve a collection: a page, and JSON for programs.

    Tokens say who may read and who may write. They are read from files or from the environment, never from the command
    line, which others can see.
    """
    given = {name: value for name, value in locals().items() if name not in ("path", "open_page")}
    from gphash.server import service
    from gphash.server.settings import ServiceSettings

    given |= {"read_token": _token(read_token, READ), "write_token": _token(write_token, WRITE)}
    given |= {"hosts": tuple(hosts) if hosts else None, "log_requests": not shown.manner.quiet}
    from gphash.collection import manifest

    if "://" not in path and not manifest.is_collection(path):
        what = f"{path!r} is a file" if Path(path).is_file() else f"there is no collection {path!r}"
        raise ValueError(f"{what}; gphash index makes a collection.")
    waiting = threading.Timer(PATIENCE, shown.say, ["getting ready: what is used for the first time is compiled"])
    waiting.daemon = True

    def tell(state: str, address: str) -> None:
        """Say where the service listens, and later that it is ready if that took long."""
        if state == "listening" and not shown.manner.quiet:
            shown.say(f"{options.hidden(path)} at {address} (Ctrl-C stops it)")
            waiting.start()
        if state == "ready":
            if waiting.finished.is_set():
                shown.say("ready")
            waiting.cancel()
            if open_page:
                webbrowser.open(address)

    try:
        service.run(path, ServiceSettings(**given), tell)
    finally:
        waiting.cancel()


def _token(path: Path | None, variable: str) -> str | None:
    """A token from a file, else from the environment; never from the command line, which other users can see."""
    if path is None:
        if (token := os.environ.get(variable)) == "":
            raise ValueError(f"{variable} is set, but empty; give it a token, or unset it to ask for none.")
        return token
    with open(path, encoding="utf-8") as file:
        mode = os.fstat(file.fileno()).st_mode
        # Others on this machine must not read a token; a pipe has no such permissions, nor has Windows.
        if os.name == "posix" and stat.S_ISREG(mode) and mode & OTHERS:
            raise ValueError(
                f"{str(path)!r} has the mode {stat.S_IMODE(mode):03o}, so that others can read the token; "
                f"keep it to yourself: chmod 600 {shlex.quote(str(path))}"
            )
        token = file.read(TOKEN_BYTES + 1).strip()
    if not token or len(token) > TOKEN_BYTES or len(token.splitlines()) > 1:
        raise ValueError(f"{str(path)!r} must hold a token and nothing else; it is empty, or has more than one line.")
    return token
