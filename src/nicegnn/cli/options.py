"""What commands share. They import the library when they run: `--help` must not wait for torch."""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from nicegnn.errors import ConfigError, NicegnnError

console = Console()
Words = list[str] | None


#: The extra that installs each optional package.
_EXTRAS = {
    **dict.fromkeys(("matplotlib", "networkx", "sklearn", "PIL"), "plots"),
    **dict.fromkeys(("pandas", "pyarrow"), "tables"),
    "rdkit": "molecules",
    "ray": "cluster",
    **dict.fromkeys(("fastapi", "uvicorn"), "page"),
    "mcp": "assistants",
    "openpyxl": "spreadsheets",
    "numba": "speed",
}


class WordError(ConfigError):
    """A word on the command line is unknown or cannot be used; the command ends with code 2."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """Ends the command with one readable message; code 2 for what was typed, else 1."""
    try:
        yield
    except NicegnnError as error:
        _end(str(error), 2 if isinstance(error, ConfigError) else 1)
    except ImportError as error:  # of an optional package; others are errors of ours
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        if "nicegnn[" in str(error):
            _end(str(error), 1)
        if extra is None:
            raise
        _end(f"{error}. Run: pip install 'nicegnn[{extra}]'", 1)
    except OSError as error:
        _end(f"{error.filename or 'A file'}: {error.strerror or error}.", 1)


def _end(message: str, code: int) -> NoReturn:
    typer.echo(f"{typer.style('Error', fg='red', bold=True)}: {message}", err=True)
    sys.exit(code)


@contextmanager
def typed_words(next_step: str = "Choose one of these.") -> Iterator[None]:
    """Says of a wrong setting that it was typed, and what to do."""
    try:
        yield
    except ConfigError as error:
        raise WordError(f"{error} {next_step}".rstrip()) from error


def split_commas(values: Words) -> list[str]:
    """Returns the words of an option that is repeated, or has commas between its words.

    Example:
        >>> split_commas(["a,b", "c"]), split_commas(None)
        (['a', 'b', 'c'], [])
    """
    parts = [part.strip() for value in values or [] for part in value.split(",")]
    return [part for part in parts if part]


def split_numbers(flag: str, values: Words, kind: type, default: tuple[Any, ...]) -> Any:
    """Returns the numbers of such an option as a tuple, or the default for none."""
    try:
        return tuple(kind(text) for text in split_commas(values)) or default
    except ValueError:
        what = "whole numbers" if kind is int else "numbers"
        raise WordError(f"`{flag}` must be {what}, such as {default} (got {values}).") from None


def opt(help: str, *flags: str, **limits: Any) -> Any:
    """An option, its meaning first."""
    return typer.Option(*flags, help=help, **limits)


Json = Annotated[bool, opt("Print the result as JSON, and nothing else, on stdout.", "--json")]


def print_json(value: Any) -> None:
    """Prints a value as JSON; numbers that are nan or infinite are null."""
    typer.echo(json.dumps(_finite(value), allow_nan=False, default=str))


def saying(json: bool) -> Callable[[str], None]:
    """Returns what prints words on stdout, where JSON does not stand alone."""
    return (lambda _: None) if json else typer.echo


def list_files(files: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Says which file is what."""
    for what, path in files.items():
        say(f"  {what}: {path}")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_file(help: str, *flags: str, is_folder: bool = False) -> Any:
    """An option for a file to write; whether it can be written is checked before the work."""

    def check(param: typer.CallbackParam, path: Path | None) -> Path | None:
        try:
            if path is not None:
                if path.is_dir() and not is_folder:
                    raise IsADirectoryError(None, "it is a folder")
                places = [path, *path.absolute().parents][not is_folder :]
                there = next(place for place in places if place.exists())
                tempfile.TemporaryFile(dir=there).close()
        except OSError as error:
            raise WordError(
                f"`{param.opts[0]}` must be a {'folder' if is_folder else 'file'} that can be "
                f"written (got {path}: {error.strerror}). Name another."
            ) from error
        return path

    return typer.Option(*flags, help=help, callback=check)


def to_folder(help: str) -> Any:
    """The option ``--out`` for a folder to write to; it is made if it is missing."""
    return to_file(help, "--out", is_folder=True)


def _load(files: Words) -> Words:
    """Loads plugins before names are looked up, also those of installed packages."""
    from nicegnn.plugins import load_plugins

    with typed_words("docs/own-things.md says more."):
        load_plugins(*(files or ()))
    return files


Plugins = Annotated[
    Words,
    opt("Python file that adds names; repeat.", "--plugin", callback=_load, is_eager=True),
]
AnySeed = Annotated[int, opt("Seed of everything random.")]
