"""Data files: the folders they lie in, their checksums, and what can be wrong with them.

The data folder is an argument, else ``NICEGNN_DATA``, else ``nicegnn/data`` in the user's cache
folder. It is only read, except by a download. The cache folder for prepared data is an argument,
else ``NICEGNN_CACHE``, else ``nicegnn`` in the user's cache folder.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from nicegnn.errors import NicegnnError


class DataError(NicegnnError, RuntimeError):
    """Base of all errors about data files."""


class MissingDataError(DataError):
    """The files of a dataset are not in the data folder."""


class DamagedFileError(DataError):
    """A file is truncated, not of its format, or lacks columns."""


class ChecksumError(DataError):
    """A file is complete, but its content is not the expected one."""


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
