"""Data files: folders, errors and downloads.

The data folder is an argument, else ``NICEGNN_DATA``, else ``nicegnn/data`` in the user's cache
folder. Only a download writes to it. The cache folder for prepared data is an argument, else
``NICEGNN_CACHE``, else ``nicegnn`` in the user's cache folder.

A file is put in place only when it is complete and its checksum is the expected one. Proxies come
from ``https_proxy`` and so on.
"""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path
from urllib.request import Request, urlopen

from nicegnn.errors import NicegnnError
from nicegnn.store import write_whole

TIMEOUT = 30.0  # seconds without data


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
    sha256: str | None = None  # expected checksum, if it is known
    note: str = ""  # advice for an error message


@dataclass(frozen=True)
class Downloaded:
    """The result of downloading one file."""

    path: Path
    status: str  # "fetched" or "already there"
    sha256: str


def download_file(file: RemoteFile, folder: Path, *, force: bool = False) -> Downloaded:
    """Fetches one file into the data folder; see `download_dataset`."""
    target = folder / file.path
    if target.is_file() and not force:
        got = sha256_of(target)
        if file.sha256 not in (None, got):
            raise ChecksumError(
                f"{target} must have the sha256 {file.sha256} (got {got}). Pass force=True "
                "(--force) to fetch it again, or move your file elsewhere."
            )
        return Downloaded(target, "already there", got)
    reasons: list[str] = []
    kind: type[DataError] = DownloadError
    for url in file.urls:
        try:
            content = _fetch(url)
        except (HTTPException, OSError) as error:  # errors of urllib are OSErrors
            reasons.append(f"{url}: {str(error) or type(error).__name__}")
            continue
        got = hashlib.sha256(content).hexdigest()
        if file.sha256 in (None, got):
            write_whole(target, partial(Path.write_bytes, data=content))
            return Downloaded(target, "fetched", got)
        reasons.append(f"{url}: its sha256 must be {file.sha256} (got {got})")
        kind = ChecksumError
    raise kind(
        f"{file.path} could not be fetched: {'; '.join(reasons)}. Without a network, fetch "
        f"{file.urls[0]} elsewhere and place it at {target}. {file.note}".rstrip()
    )


def _fetch(url: str) -> bytes:
    """Returns all that an address holds; a broken connection is an error."""
    request = Request(url, headers={"User-Agent": "nicegnn", "Accept-Encoding": "identity"})
    with urlopen(request, timeout=TIMEOUT) as reply:
        content: bytes = reply.read()
    return content
