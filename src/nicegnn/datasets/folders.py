"""Where data files lie and where prepared data are cached.

The data folder is an argument, else ``NICEGNN_DATA``, else ``data`` in the user's cache folder. It
is only read, except by a download. The cache folder is an argument, else ``NICEGNN_CACHE``, else
``nicegnn`` in the user's cache folder.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path


def data_folder(root: str | Path | None = None) -> Path:
    """Returns the folder that holds the data files; it need not exist."""
    chosen = root or os.environ.get("NICEGNN_DATA")
    return Path(chosen).expanduser() if chosen else _user_cache() / "nicegnn" / "data"


def cache_folder(cache: str | Path | None = None) -> Path:
    """Returns the folder for prepared data; it need not exist."""
    chosen = cache or os.environ.get("NICEGNN_CACHE")
    return Path(chosen).expanduser() if chosen else _user_cache() / "nicegnn"


def _user_cache() -> Path:
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"])
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32" and os.environ.get("LOCALAPPDATA"):
        return Path(os.environ["LOCALAPPDATA"])
    return Path.home() / ".cache"


def sha256_of(path: Path) -> str:
    """Returns the SHA-256 of a file as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
