"""Writes files whole or not at all: text, JSON, tensors with a description, and others."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from nicegnn.errors import StoreError


def write_whole(path: str | Path, write: Callable[[Path], object]) -> None:
    """Writes a file whole or not at all; a crash half-way leaves the old file in place.

    Missing folders are made. ``write`` is given a temporary path in the same folder, whose name
    starts with a dot and ends in ``.part``. A full disk or a forbidden place is a `StoreError`.
    """
    path = Path(path)
    if path.is_dir():
        raise StoreError(f"`path` must be a file (got the folder {path}). Add a file name.")
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise StoreError(
            f"Cannot write {path}: {reason}. Make room, or name a place that can be written."
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Writes a text file, whole or not at all."""
    write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_json(path: str | Path, content: Any) -> None:
    """Writes JSON, whole or not at all."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def save_tensors(path: str | Path, tensors: dict[str, Tensor], description: dict[str, Any]) -> None:
    """Writes tensors and a JSON description into one file, whole or not at all."""
    plain = {key: value.detach().cpu().contiguous().clone() for key, value in tensors.items()}
    text = json.dumps(description)
    metadata = {"nicegnn": text, "sha256": tensor_digest({**plain, text: None})}

    def write(temporary: Path) -> None:
        save_file(plain, temporary, metadata=metadata)
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # safetensors writes for the owner alone

    write_whole(path, write)


def load_tensors(path: str | Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Reads tensors and description of a file of the given `kind`."""
    path = Path(path)
    if not path.is_file():
        raise StoreError(f"There is no file {path}; save() writes one.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        text = metadata["nicegnn"]
        digest = tensor_digest({**tensors, text: None})
        if metadata.get("sha256", digest) != digest:  # older files have no checksum
            raise ValueError("its checksum is wrong")
        description = json.loads(text)
        if not isinstance(description, dict):
            raise ValueError("its description is not a table")
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise StoreError(
            f"{path} is damaged or was not written by nicegnn ({type(error).__name__}: {error}); "
            "write it again with save()."
        ) from error
    if description.get("kind") != kind:
        raise StoreError(f"{path} holds a {description.get('kind')!r}, not a {kind!r}.")
    return tensors, description


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


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Returns copies of an optimiser's state as named tensors."""
    return {
        f"optimiser.{number}.{key}": value.clone()
        for number, state in optimiser.state_dict()["state"].items()
        for key, value in state.items()
    }


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Puts back what `optimiser_tensors` returned."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith("optimiser."):
            _, number, name = key.split(".")
            state.setdefault(int(number), {})[name] = value
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": state, "param_groups": groups})
