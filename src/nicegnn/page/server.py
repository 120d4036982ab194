"""The server: one page, and the same answers as JSON, described at ``/docs``.

Nothing is loaded from elsewhere. Every error is ``{"error": {"name", "message"}}`` with a name of
`ERRORS`.
"""

from __future__ import annotations

import json
import logging
import mimetypes
import socket
import threading
import time
import webbrowser
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import uvicorn
from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.gzip import GZipMiddleware
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from nicegnn import __version__
from nicegnn.errors import ConfigError, NicegnnError
from nicegnn.page.answers import Case, Change, Comparison, Drawn, Model, Row, compare, list_models
from nicegnn.page.asking import ERRORS, Limits, PageError, Shelf, sent_records
from nicegnn.page.desk import Desk, to_csv
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
_DRAWN = (640, 480)  # of pictures that are downloaded

Smiles = Annotated[str, Query(description="A SMILES, and a name after a space if there is one.")]
ModelName = Annotated[str, Query(description="One of /api/models; empty for the first.")]


class Problem(BaseModel):
    """What went wrong."""

    class Error(BaseModel):
        name: str
        message: str

    error: Error


class Rate:
    """Counts the requests of each address within a minute."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute, self._minute = per_minute, 0
        self._made: Counter[str] = Counter()

    def take(self, address: str) -> bool:
        """Returns whether the address may make one more request now."""
        minute = int(time.monotonic() // 60)
        if minute != self._minute:
            self._minute = minute
            self._made.clear()
        self._made[address] += 1
        return self._made[address] <= self.per_minute


def make_app(shelf: Shelf, limits: Limits, hosts: tuple[str, ...] | None = LOCAL) -> FastAPI:
    """Returns the application; ``hosts`` are the names it may be asked by, None for all."""
    desk, rate = Desk(shelf, limits), Rate(limits.per_minute)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        desk.close()

    app = FastAPI(
        title="nicegnn",
        version=__version__,
        description="What a graph neural network predicts for a molecule, and which bonds and "
        "atoms its prediction rests on.",
        docs_url=None,
        redoc_url=None,
        lifespan=life,
        responses={code: {"model": Problem} for code in (422, *sorted({*ERRORS.values()} - {422}))},
    )
    app.state.limits = limits
    app.add_middleware(GZipMiddleware, minimum_size=2000)

    @app.middleware("http")
    async def guarded(request: Request, go_on: Callable[[Request], Awaitable[Response]]) -> Any:
        try:
            _check_host(request, hosts)
            address = request.client.host if request.client else ""
            if request.url.path.startswith("/api/") and not rate.take(address):
                raise PageError(
                    f"An address may make {limits.per_minute} requests a minute (got more). Wait a "
                    "little.",
                    "too_many_requests",
                )
            answer = await go_on(request)
        except PageError as error:
            answer = _problem(error.name, str(error))
        for name, value in _HEADERS.items():
            answer.headers.setdefault(name, value)
        return answer

    @app.exception_handler(NicegnnError)
    def refused(_: Request, error: NicegnnError) -> Response:
        return _problem(error.name if isinstance(error, PageError) else "bad_molecule", str(error))

    @app.exception_handler(RequestValidationError)
    def unreadable(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        name, came = first["loc"][-1], str(first.get("input"))[:100]
        return _problem("bad_request", f"`{name}`: {first['msg']} (got {came!r}). See /docs.")

    @app.exception_handler(ImportError)
    def missing(_: Request, error: ImportError) -> Response:
        return _problem("missing_package", str(error))

    @app.exception_handler(HTTPException)
    def unknown(_: Request, error: HTTPException) -> Response:
        name = "unknown_page" if error.status_code == 404 else "bad_request"
        return _problem(name, f"{error.detail}. See /docs.", error.status_code)

    @app.exception_handler(Exception)
    def broken(_: Request, error: Exception) -> Response:
        logging.getLogger(__name__).error("The page could not answer.", exc_info=error)
        text = f"This did not work ({type(error).__name__}). The log of the server says more."
        return _problem("internal", text)

    _add_answers(app, desk)
    _add_downloads(app, desk)
    _add_files(app, desk)
    mimetypes.add_type("text/javascript", ".js")  # some systems say something else
    app.get("/docs", include_in_schema=False)(lambda: FileResponse(_STATIC / "interface.html"))
    app.mount("/", StaticFiles(directory=_STATIC, html=True))
    return app


def _add_answers(app: FastAPI, desk: Desk) -> None:
    @app.get("/api/models")
    def models() -> list[Model]:
        """The models that can be asked, the first choice first."""
        return list_models(desk.shelf)

    @app.get("/api/explain")
    def explain(
        smiles: Smiles,
        model: ModelName = "",
        limit: Annotated[
            float | None, Query(gt=0, description="Score that has the full colour.")
        ] = None,
    ) -> Drawn:
        """What a model predicts for a molecule, and the share of each bond and atom in it."""
        return desk.case(smiles, model).drawn(limit)

    @app.get("/api/compare")
    def comparison(
        smiles: Smiles, smiles2: Smiles, model: ModelName = "", model2: ModelName = ""
    ) -> Comparison:
        """Two molecules or two models side by side; an empty second model is the first one."""
        return compare(desk.case(smiles, model), desk.case(smiles2, model2 or model))

    @app.get("/api/changes")
    def changes(smiles: Smiles, atom: int, model: ModelName = "") -> list[Change]:
        """What is predicted if one atom is another, the largest changes first."""
        return desk.changes(smiles, model, atom)


def _add_downloads(app: FastAPI, desk: Desk) -> None:
    def add(name: str, kind: str, about: str, make: Callable[[Case], str | bytes]) -> None:
        def download(smiles: Smiles, model: ModelName = "") -> Response:
            head = {"Content-Disposition": f'attachment; filename="{name}"'}
            return Response(make(desk.case(smiles, model)), media_type=kind, headers=head)

        download.__doc__ = about
        content: dict[int | str, dict[str, Any]] = {200: {"content": {kind: {}}}}
        route = app.get(f"/api/{name}", name=name, response_class=Response, responses=content)
        route(download)

    add("picture.svg", "image/svg+xml", "The picture as SVG.", lambda case: _picture(case).svg)
    add("picture.png", "image/png", "The picture as PNG.", lambda case: _picture(case).png())
    add("bonds.csv", "text/csv", "All bonds as CSV.", lambda case: to_csv(case, "bonds"))
    add("atoms.csv", "text/csv", "All atoms as CSV.", lambda case: to_csv(case, "atoms"))
    about = "The molecule as SDF, with lists of the numbers of its atoms and bonds."
    add("molecule.sdf", "chemical/x-mdl-sdfile", about, lambda case: sdf_of(case.cells))


async def _body(request: Request) -> bytes:
    """Returns the body of a request, unless it is larger than a file may be."""
    content, most = bytearray(), request.app.state.limits.megabytes
    async for part in request.stream():
        content += part
        if len(content) > most * 2**20:
            raise PageError(
                f"A file must have at most {most} MB (got more). Use `nicegnn explain` for large "
                "files.",
                "too_large",
            )
    return bytes(content)


def _add_files(app: FastAPI, desk: Desk) -> None:
    sent: dict[str, Any] = {"requestBody": {"required": True, "content": {"text/plain": {}}}}

    @app.post(
        "/api/file",
        response_class=StreamingResponse,
        openapi_extra=sent,
        responses={200: {"model": Row, "description": "A line of JSON for each molecule, or SDF."}},
    )
    def file(
        content: Annotated[bytes, Depends(_body)],
        name: Annotated[str, Query(description="Name of the file, whose ending tells its kind.")],
        model: ModelName = "",
        column: Annotated[str, Query(description="Column of the SMILES.")] = "",
        format: Literal["json", "sdf"] = "json",
    ) -> Response:
        """Explains all molecules of a file, the body of the request; lines come as they are made.

        Own columns are kept. A molecule without an answer has a line that says why; an SDF has
        none of it.
        """
        lines = desk.table(sent_records(name, content, column, desk.limits), model)
        lines = chain([next(lines)], lines)  # errors of the file come before the first line
        if format == "sdf":
            words = (sdf_of(one.cells) for one in lines if isinstance(one, Case))
            return StreamingResponse(words, media_type="chemical/x-mdl-sdfile")
        return StreamingResponse(_lines(lines), media_type="application/x-ndjson")


def _lines(cases: Iterator[Case | Row]) -> Iterator[str]:
    for one in cases:
        row = Row.of(one.record, one.drawn()) if isinstance(one, Case) else one
        yield f"{json.dumps(row.model_dump(), ensure_ascii=False)}\n"


def _picture(case: Case) -> Any:
    return case.out.draw(title=case.title, size=_DRAWN)


def _check_host(request: Request, hosts: tuple[str, ...] | None) -> None:
    """Raises unless the page is asked by its own name: other sites cannot point theirs at it."""
    name = request.url.hostname or ""
    if hosts is not None and name not in hosts:
        raise PageError(
            f"The page must be asked by one of {', '.join(hosts)} (got {name!r}). Start it with "
            "--host to open it to others.",
            "wrong_host",
        )


def _problem(name: str, message: str, code: int | None = None) -> Response:
    error = {"error": {"name": name, "message": message}}
    return JSONResponse(error, status_code=code or ERRORS[name])


def serve(
    shelf: Shelf,
    limits: Limits,
    *,
    host: str = LOCAL[0],
    port: int = 0,
    opens_browser: bool = False,
    say: Callable[[str], object] = lambda text: None,
) -> None:
    """Shows the page until the process is stopped; port 0 takes the first free one."""
    app = make_app(shelf, limits, LOCAL if host in LOCAL else None)
    listening = _listen(host, port)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}"
    say(f"The page is at {address} (Ctrl-C stops it).")
    if opens_browser:
        threading.Timer(1.0, webbrowser.open, [address]).start()
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=3)
    uvicorn.Server(config).run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    """Returns a socket at the port, or at the first free one."""
    problem: OSError | None = None
    for number in [port] if port else PORTS:
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            return socket.create_server((host, number), family=family)
        except OSError as error:
            problem = error
    raise ConfigError(
        f"`host` and `port` must be free (got {host}, port {port or PORTS[0]}: {problem}). Name "
        "another port, or 0 for the first free one."
    )
