"""Data files: folders, errors and downloads.

The data folder is an argument, else ``NICEGNN_DATA``, else ``nicegnn/data`` in the user's cache
folder. Only a download writes to it. The cache folder for prepared data is an argument, else
``NICEGNN_CACHE``, else ``nicegnn`` in the user's cache folder.

A download resumes after a broken connection, and a file is put in place only when it is complete
and checked. Proxies come from ``https_proxy`` and so on. If no checksum is known, that of the first
download is written to ``.nicegnn-downloads.json`` in the data folder, and later downloads must
agree with it.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from socket import gaierror
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from nicegnn.errors import NicegnnError
from nicegnn.progress import progress_bar
from nicegnn.store import write_json

RECORD = ".nicegnn-downloads.json"
ATTEMPTS = 5  # connections for each address
WAIT = 1.0  # seconds before the second attempt, doubled each time
TIMEOUT = 30.0  # seconds without data

_BLOCK = 1 << 16
_FINAL = (401, 403, 404, 410)  # HTTP errors that a new attempt does not mend


class DataError(NicegnnError, RuntimeError):
    """Base of all errors about data files."""


class MissingDataError(DataError):
    """The files of a dataset are not in the data folder."""


class DamagedFileError(DataError):
    """A file is truncated, not of its format, or lacks columns."""


class ChecksumError(DataError):
    """A file is complete, but has another content than expected."""


class DownloadError(DataError):
    """A file cannot be fetched from any of its addresses."""


def data_folder(root: str | Path | None = None) -> Path:
    """Returns the folder that holds the data files; it need not exist."""
    return Path(root or os.environ.get("NICEGNN_DATA") or _user_cache() / "data").expanduser()


def cache_folder(cache: str | Path | None = None) -> Path:
    """Returns the folder for prepared data; it need not exist."""
    return Path(cache or os.environ.get("NICEGNN_CACHE") or _user_cache()).expanduser()


def _user_cache() -> Path:
    home = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"
    local = os.environ.get("LOCALAPPDATA") if sys.platform == "win32" else None
    return Path(os.environ.get("XDG_CACHE_HOME") or local or home) / "nicegnn"


def sha256_of(path: Path) -> str:
    """Returns the SHA-256 of a file as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class RemoteFile:
    """A file to fetch."""

    path: str  # place inside the data folder
    urls: tuple[str, ...]  # addresses of the same content, tried in order
    sha256: str | None = None  # expected checksum, if we know it
    note: str = ""  # advice for an error message


@dataclass(frozen=True)
class Downloaded:
    """The result of downloading one file."""

    path: Path
    status: str  # "fetched", "already there", or "first use" without a known checksum
    sha256: str


def download_file(
    file: RemoteFile, folder: Path, *, force: bool = False, progress: bool = False
) -> Downloaded:
    """Fetches one file into the data folder; see `download_dataset`."""
    target = folder / file.path
    expected = file.sha256 or _recorded(folder).get(file.path)
    if target.is_file() and not force:
        found = sha256_of(target)
        if expected not in (None, found):
            raise ChecksumError(
                f"{target} must have the sha256 {expected} (got {found}). Pass force=True "
                "(--force) to fetch it again, or move your file elsewhere."
            )
        return Downloaded(target, "already there", found)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    if expected is None:
        part.unlink(missing_ok=True)  # without a checksum, an old part may not fit
    reasons: list[str] = []
    for url in file.urls:
        try:
            found = _fetch(url, part, expected, progress)
        except (DownloadError, ChecksumError) as error:
            reasons.append(f"{url}: {error}")
            kind = type(error)
            continue
        os.replace(part, target)
        if file.sha256 is None:
            write_json(folder / RECORD, {**_recorded(folder), file.path: found})
        return Downloaded(target, "fetched" if expected else "first use", found)
    raise kind(
        f"{file.path} could not be fetched: {'; '.join(reasons)}. Without a network, fetch "
        f"{file.urls[0]} elsewhere and place it at {target}. {file.note}".rstrip()
    )


def _fetch(url: str, part: Path, expected: str | None, progress: bool) -> str:
    """Fetches an address into ``part`` and returns its checksum."""
    was_begun = part.is_file()
    _fetch_whole(url, part, progress)
    found = sha256_of(part)
    if expected in (None, found):
        return found
    part.unlink()
    if was_begun:  # the old part may be wrong: start again
        return _fetch(url, part, expected, progress)
    raise ChecksumError(f"its sha256 must be {expected} (got {found})")


def _fetch_whole(url: str, part: Path, progress: bool) -> None:
    """Connects up to `ATTEMPTS` times and resumes where the last connection broke."""
    validator = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(WAIT * 2 ** (attempt - 1))
        try:
            validator, is_whole = _fetch_some(url, part, validator, progress)
        except HTTPError as error:
            error.close()
            reason = f"HTTP {error.code} {error.reason}"
            if error.code in _FINAL:
                break
            if error.code == 416:  # the file ends before the part does: they differ
                part.unlink(missing_ok=True)
        except (URLError, HTTPException, OSError) as error:
            cause = getattr(error, "reason", error)
            reason = str(cause) or type(cause).__name__
            if isinstance(cause, gaierror):  # no such host, or no network at all
                break
        else:
            if is_whole:
                return
            reason = f"the connection broke after {part.stat().st_size} bytes"
    raise DownloadError(f"{reason} (after {attempt + 1} attempts)")


def _fetch_some(url: str, part: Path, validator: str, progress: bool) -> tuple[str, bool]:
    """Reads one connection; returns the server's version mark and whether the file is complete."""
    start = part.stat().st_size if part.is_file() else 0
    headers = {"User-Agent": "nicegnn", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
        if validator:
            headers["If-Range"] = validator
    with urlopen(Request(url, headers=headers), timeout=TIMEOUT) as reply:
        received = start if reply.status == 206 else 0  # else the server starts again
        length = reply.headers.get("Content-Length")
        total = None if length is None else received + int(length)
        mark = reply.headers.get("ETag", "")
        with (
            part.open("r+b" if received else "wb") as file,
            progress_bar(part.stem, (total or 0) // 1024, shown=progress) as advance,
        ):
            file.seek(received)
            while block := reply.read(_BLOCK):
                file.write(block)
                received += len(block)
                advance(received // 1024, "KiB")
        return "" if mark.startswith("W/") else mark, total is None or received == total


def _recorded(folder: Path) -> dict[str, str]:
    try:
        content = json.loads((folder / RECORD).read_text())
    except (OSError, ValueError):
        return {}
    return {str(key): str(value) for key, value in content.items()}
