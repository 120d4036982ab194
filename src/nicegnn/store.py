"""Writes files whole or not at all: text, JSON, tensors with a description, and others."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from nicegnn.errors import StoreError


def _checked_path(path: Any) -> Path:
    """Returns a path that the system can take."""
    with suppress(TypeError, UnicodeError):
        if b"\0" not in os.fsencode(path):
            return Path(path)
    raise StoreError(f"`path` must be a path (got {path!r:.60}). Pass text or a pathlib.Path.")


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Yields a temporary path that becomes `path` when the block ends well, and else is removed.

    Missing folders are made. A full disk or a forbidden place is a `StoreError`.
    """
    path = _checked_path(path)
    if path.is_dir():
        raise StoreError(f"`path` must be a file (got the folder {path}). Add a file name.")
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise StoreError(
            f"Cannot write {path}: {reason}. Make room, or name a place that can be written."
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_whole(path: str | Path, write: Callable[[Path], object]) -> None:
    """Writes a file whole or not at all; a crash half-way leaves the old file in place."""
    with whole_file(path) as temporary:
        write(temporary)


def write_text(path: str | Path, text: str) -> None:
    write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_json(path: str | Path, content: Any) -> None:
    write_text(path, json.dumps(content, indent=2) + "\n")


def save_tensors(path: str | Path, tensors: dict[str, Tensor], description: dict[str, Any]) -> None:
    """Writes tensors and a JSON description into one file, whole or not at all."""
    plain = {key: value.detach().cpu().contiguous().clone() for key, value in tensors.items()}
    text = json.dumps(description)
    metadata = {"nicegnn": text, "sha256": tensor_digest({**plain, text: None})}
    with whole_file(path) as temporary:
        save_file(plain, temporary, metadata=metadata)
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # safetensors writes for the owner alone


def load_tensors(path: str | Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Reads tensors and description of a file of the given `kind`."""
    path = _checked_path(path)
    if not path.is_file():
        raise StoreError(f"There is no file {path}; save() writes one.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        text = metadata["nicegnn"]
        digest = tensor_digest({**tensors, text: None})
        if metadata.get("sha256", digest) != digest:  # the stored targets have no checksum
            raise ValueError("its checksum is wrong")
        description = dict(json.loads(text))
    except (SafetensorError, KeyError, TypeError, ValueError, OSError) as error:
        raise StoreError(
            f"{path} is damaged or was not written by nicegnn ({type(error).__name__}: {error}); "
            "write it again with save()."
        ) from error
    if description.get("kind") != kind:
        raise StoreError(f"{path} holds a {description.get('kind')!r}, not a {kind!r}.")
    return tensors, description


def check_fields(path: str | Path, content: object, wanted: Mapping[str, type]) -> dict[str, Any]:
    """Returns what was read as a table; fields that are missing or wrong are a `StoreError`."""
    table = content if isinstance(content, dict) else {}
    wrong = [name for name, kind in wanted.items() if not isinstance(table.get(name), kind)]
    if wrong:
        names = ", ".join(wrong[:3])
        raise StoreError(f"{path} is damaged: it lacks {names}, or has them wrong. Write it again.")
    return table


def tensors_below(tensors: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    """Returns the tensors whose name starts with a part and a dot, without these."""
    return {k.removeprefix(f"{part}."): v for k, v in tensors.items() if k.startswith(f"{part}.")}


def tensor_digest(tensors: Mapping[str, Tensor | None]) -> str:
    """Returns the SHA-256 of names, types, shapes and numbers, the same on every device."""
    digest = hashlib.sha256()
    for key, value in sorted(tensors.items()):
        digest.update(key.encode())
        if isinstance(value, Tensor):
            digest.update(f"{value.dtype}{tuple(value.shape)}".encode())
            whole = value.detach().cpu().contiguous()
            flat = whole.as_strided((whole.numel(),), (1,))  # an empty one may have any stride
            digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()
