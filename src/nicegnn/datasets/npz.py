"""Arrays of ``.npz`` files from others, read so that no code in the file can ever run.

Plain arrays are read by NumPy with ``allow_pickle=False``. The published attribution masks are
pickled objects; `read_object_array` reads them with a pickle reader whose every name is looked up
in a list of four and stands for an inert class of this file, never for the real thing. A name
outside the list is an error, so the worst a file can do is not to be read.
"""

from __future__ import annotations

import pickle
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from nicegnn.datasets.errors import DamagedFileError

_PLAIN_KINDS = "biuf"  # booleans, integers, floats
_UNREADABLE = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)


def read_plain_array(path: Path, key: str) -> npt.NDArray[Any]:
    """Returns one array of numbers of an ``.npz`` file.

    Raises:
        DamagedFileError: If the file is not sound, or the array holds pickled objects.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return np.asarray(arrays[key])
    except _UNREADABLE as error:
        raise DamagedFileError(_damage(path, key, error)) from error


def read_object_array(path: Path, key: str) -> list[Any]:
    """Returns the items of a pickled object array: arrays, numbers, dictionaries, lists.

    Raises:
        DamagedFileError: If the file is not sound, or asks for anything but plain NumPy arrays.
    """
    try:
        with zipfile.ZipFile(path) as archive, archive.open(f"{key}.npy") as file:
            version = np.lib.format.read_magic(file)
            read_header = (
                np.lib.format.read_array_header_1_0
                if version == (1, 0)
                else np.lib.format.read_array_header_2_0
            )
            _, _, dtype = read_header(file)
            if dtype != np.dtype(object):
                raise ValueError(f"expected an array of objects, got {dtype}")
            outer = _Inert(file).load()
            return list(_plain(outer))
    except (*_UNREADABLE, pickle.UnpicklingError, AttributeError, TypeError, IndexError) as error:
        raise DamagedFileError(_damage(path, key, error)) from error


class _DType:
    """Stands for ``numpy.dtype``: remembers which plain type was meant."""

    def __init__(self, code: str, *_: Any) -> None:
        self.code = code
        self.order = "|"

    def __setstate__(self, state: Sequence[Any]) -> None:
        self.order = state[1]

    def real(self) -> np.dtype[Any]:
        order: Any = self.order if self.order in ("<", ">") else "="
        dtype = np.dtype(self.code).newbyteorder(order)
        if dtype.kind not in _PLAIN_KINDS:
            raise ValueError(f"expected numbers, got the type {self.code!r}")
        return dtype


class _Array:
    """Stands for an array under construction; its state is shape, type and bytes, or a list."""

    def __init__(self, *_: Any) -> None:
        self.value: Any = None

    def __setstate__(self, state: Sequence[Any]) -> None:
        _, shape, dtype, is_fortran, content = state
        if isinstance(content, list):
            self.value = content
        else:
            order: Any = "F" if is_fortran else "C"
            flat = np.frombuffer(content, dtype=dtype.real())
            self.value = flat.reshape(shape, order=order)


class _ArrayType:
    """Stands for ``numpy.ndarray``, which appears only as an argument."""


def _scalar(dtype: _DType, content: bytes) -> Any:
    return np.frombuffer(content, dtype=dtype.real())[0].item()


_NAMES = {"_reconstruct": _Array, "ndarray": _ArrayType, "dtype": _DType, "scalar": _scalar}
_MODULES = ("numpy", "numpy.core.multiarray", "numpy._core.multiarray")


class _Inert(pickle.Unpickler):
    """Knows four names, none of which does anything but hold data."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file)

    def find_class(self, module: str, name: str) -> Any:
        if module not in _MODULES or name not in _NAMES:
            raise pickle.UnpicklingError(f"the file asks for {module}.{name}, which is not allowed")
        return _NAMES[name]

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError(f"the file asks for an outside object {pid!r}")


def _plain(value: Any) -> Any:
    """Replaces stand-ins by what they hold."""
    if isinstance(value, _Array):
        return _plain(value.value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _damage(path: Path, key: str, error: Exception) -> str:
    return (
        f"{path}: expected an .npz file with the array {key!r}, but it cannot be read "
        f"({type(error).__name__}: {error}). Fetch or copy the file again."
    )
