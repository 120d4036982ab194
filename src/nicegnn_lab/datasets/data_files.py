"""Folders of data files and of prepared data, and errors about files."""

import hashlib
import os
from pathlib import Path

from nicegnn.errors import NicegnnError


class MissingDataError(NicegnnError, RuntimeError):
    """The files of a dataset are not in the data folder."""


class DamagedFileError(NicegnnError, RuntimeError):
    """A file is truncated, not of its format, or lacks columns."""


def data_folder(root: str | Path | None = None) -> Path:
    """Returns `root`, else ``NICEGNN_DATA``, else ``data`` in the usual `cache_folder`."""
    return Path(root or os.environ.get("NICEGNN_DATA") or _usual() / "data").expanduser()


def data_file(name: str | Path, root: str | Path | None = None) -> Path:
    """Returns a file of the data folder, or raises `MissingDataError`."""
    path = data_folder(root) / name
    if not path.is_file():
        raise MissingDataError(
            f"There is no file {path}. Set NICEGNN_DATA to the folder that holds it; `python "
            "scripts/published_data.py FOLDER` makes the tables of published sets."
        )
    return path


def cache_folder(cache: str | Path | None = None) -> Path:
    """Returns `cache`, else ``NICEGNN_CACHE``, else ``nicegnn`` in the user's cache folder."""
    return Path(cache or os.environ.get("NICEGNN_CACHE") or _usual()).expanduser()


def _usual() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "nicegnn"


def sha256_of(path: Path) -> str:

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
