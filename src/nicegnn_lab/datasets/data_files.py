"""Folders of data files and of prepared data, and errors about files."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from nicegnn.errors import NicegnnError


class MissingDataError(NicegnnError, RuntimeError):
    """The files of a dataset are not in the data folder."""


class DamagedFileError(NicegnnError, RuntimeError):
    """A file is truncated, not of its format, or lacks columns."""


def data_folder(root: str | Path | None = None) -> Path:
    """Returns `root`, else ``NICEGNN_DATA``, else ``nicegnn/data`` in the user's cache folder."""
    return Path(root or os.environ.get("NICEGNN_DATA") or _user_cache() / "data").expanduser()


def cache_folder(cache: str | Path | None = None) -> Path:
    """Returns `cache`, else ``NICEGNN_CACHE``, else ``nicegnn`` in the user's cache folder."""
    return Path(cache or os.environ.get("NICEGNN_CACHE") or _user_cache()).expanduser()


def _user_cache() -> Path:
    home = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"
    local = os.environ.get("LOCALAPPDATA") if sys.platform == "win32" else None
    return Path(os.environ.get("XDG_CACHE_HOME") or local or home) / "nicegnn"


def sha256_of(path: Path) -> str:
    """Returns the SHA-256 of a file as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
