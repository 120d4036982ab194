"""The server: one page, and the same answers as JSON, described at ``/docs``.

Every error is ``{"error": {"name", "message"}}`` with a name of `ERRORS`.
"""

from __future__ import annotations

import logging
import mimetypes
import socket
import threading
import webbrowser
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import uvicorn
from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.gzip import GZipMiddleware
from fastapi.responses import FileResponse, JSONResponse
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from nicegnn import __version__
from nicegnn.errors import ConfigError, NicegnnError
from nicegnn.page.answers import Case, Drawn
from nicegnn.page.desk import ERRORS, MOST_ATOMS, Desk, ModelName, PageError, Shelf, Smiles
from nicegnn.screening.explaining import TooLarge
from nicegnn.screening.outputs import sdf_of

PORTS = range(8421, 8521)  # the first free one is taken
LOCAL = ("127.0.0.1", "localhost", "::1")
_STATIC = Path(__file__).parent / "static"
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src "
        "'self'; img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
Limit = Annotated[float | None, Query(gt=0, description="Score that has the full colour.")]
FileName = Literal["picture.svg", "picture.png", "molecule.sdf"]
_FILES: dict[FileName, tuple[str, Callable[[Case], str | bytes]]] = {
    "picture.svg": ("image/svg+xml", lambda case: case.drawing().svg),
    "picture.png": ("image/png", lambda case: case.drawing().png()),
    "molecule.sdf": ("chemical/x-mdl-sdfile", lambda case: sdf_of(case.row)),
}


def make_app(
    shelf: Shelf, most_atoms: int = MOST_ATOMS, hosts: tuple[str, ...] | None = LOCAL
) -> FastAPI:
    """Returns the application; ``hosts`` are the names it may be asked by, None for all."""
    desk = Desk(shelf, most_atoms)
    about = "What a model predicts for a molecule, and which bonds and atoms this rests on."
    app = FastAPI(
        title="nicegnn", version=__version__, description=about, docs_url=None, redoc_url=None
    )
    app.add_middleware(GZipMiddleware, minimum_size=2000)

    @app.middleware("http")
    async def guarded(request: Request, go_on: Callable[[Request], Awaitable[Response]]) -> Any:
        name = request.url.hostname or ""
        if hosts is not None and name not in hosts:  # other sites cannot point theirs here
            text = (
                f"The page must be asked by one of {', '.join(hosts)} (got {name!r}). Use --host."
            )
            answer = _problem(request, PageError(text, "wrong_host"))
        else:
            answer = await go_on(request)
        answer.headers.update(_HEADERS)
        return answer

    for kind in (NicegnnError, ImportError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _problem)
    for question in (desk.models, desk.compare, desk.changes):
        app.get(f"/api/{question.__name__}")(question)

    @app.get("/api/explain")
    def explain(smiles: Smiles, model: ModelName = "", limit: Limit = None) -> Drawn:
        """What a model predicts for a molecule, and the share of each bond and atom in it."""
        return desk.case(smiles, model).drawn(limit)

    @app.get("/api/file/{name}", response_class=Response)
    def download(name: FileName, smiles: Smiles, model: ModelName = "") -> Response:
        """A molecule as a file: its picture, or its structure with all numbers."""
        kind, make = _FILES[name]
        head = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(make(desk.case(smiles, model)), media_type=kind, headers=head)

    mimetypes.add_type("text/javascript", ".js")  # some systems say something else
    app.get("/docs", include_in_schema=False)(lambda: FileResponse(_STATIC / "interface.html"))
    app.mount("/", StaticFiles(directory=_STATIC, html=True))
    return app


def _problem(_: Request, error: Exception) -> Response:
    """Returns the answer to an error; those that are none of ours are only in the log."""
    name, text = "bad_request", str(error)
    if isinstance(error, NicegnnError):
        usual = "too_large" if isinstance(error, TooLarge) else "bad_molecule"
        name = getattr(error, "name", usual)
    elif isinstance(error, ImportError):
        name = "missing_package"
    elif isinstance(error, RequestValidationError):
        first = error.errors()[0]
        came = str(first.get("input"))[:100]
        text = f"`{first['loc'][-1]}`: {first['msg']} (got {came!r}). See /docs."
    elif isinstance(error, HTTPException):
        name = "unknown_page" if error.status_code == 404 else name
        text = f"{error.detail}. See /docs."
    else:
        name, text = "internal", f"This did not work ({type(error).__name__}). See the log."
        logging.getLogger(__name__).error("The page could not answer.", exc_info=error)
    status = getattr(error, "status_code", ERRORS[name])
    return JSONResponse({"error": {"name": name, "message": text}}, status)


def serve(
    shelf: Shelf,
    most_atoms: int,
    *,
    host: str = LOCAL[0],
    port: int = 0,
    opens_browser: bool = False,
    say: Callable[[str], object] = lambda text: None,
) -> None:
    """Shows the page until the process is stopped; port 0 takes the first free one."""
    app = make_app(shelf, most_atoms, LOCAL if host in LOCAL else None)
    family, problem = socket.AF_INET6 if ":" in host else socket.AF_INET, OSError()
    for number in [port] if port else PORTS:
        try:
            listening = socket.create_server((host, number), family=family)
            break
        except OSError as error:
            problem = error
    else:
        raise ConfigError(
            f"`host` and `port` must be free (got {host}, port {number}: {problem}). Name another."
        ) from problem
    address = f"http://{f'[{host}]' if ':' in host else host}:{number}"
    say(f"The page is at {address} (Ctrl-C stops it).")
    if opens_browser:
        threading.Timer(1.0, webbrowser.open, [address]).start()
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=3)
    with suppress(KeyboardInterrupt):  # Ctrl-C is how a page ends
        uvicorn.Server(config).run(sockets=[listening])
