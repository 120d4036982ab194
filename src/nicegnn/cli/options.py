"""What commands share. They import the library when they run: `--help` must not wait for torch."""

from __future__ import annotations

import inspect
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from nicegnn.config import Settings
from nicegnn.errors import ConfigError, NicegnnError

Words = list[str] | None
REJECTED, STOPPED = 3, 130
CODES = (
    "Exit codes: 0 all went well; 1 an error; 2 a wrong word on the command line; 3 finished, but "
    "some molecules were rejected (rejects.csv says why); 130 stopped by Ctrl-C."
)
_COMMENT = re.compile(r"^    (\w+): .*?  # (.+)$", re.MULTILINE)
_SHORT = {"model": ["-m"], "explainer": ["-e"], "label": ["-y"]}
_KEYWORD = inspect.Parameter.KEYWORD_ONLY


class WordError(ConfigError):
    """A word on the command line is unknown or cannot be used; the command ends with code 2."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """Ends the command with one readable message; code 2 for what was typed, else 1."""
    try:
        yield
    except (NicegnnError, ImportError, OSError) as error:
        said = str(error)
        if isinstance(error, ImportError) and "nicegnn[" not in said:  # see `require`
            raise
        if isinstance(error, OSError):
            said = f"{error.filename or 'A file'}: {error.strerror or error}."
        typer.echo(f"{typer.style('Error', fg='red', bold=True)}: {said}", err=True)
        sys.exit(2 if isinstance(error, ConfigError) else 1)


@contextmanager
def typed_words(next_step: str = "Choose one of these.") -> Iterator[None]:
    """Says of a wrong setting that it was typed, and what to do."""
    try:
        yield
    except ConfigError as error:
        raise WordError(f"{error} {next_step}".rstrip()) from error


def one_thread() -> None:
    """Molecules are small: more threads mostly wait for each other, and for other programs."""
    import torch

    torch.set_num_threads(1)


def opt(help: str, *flags: str, **limits: Any) -> Any:
    return typer.Option(*flags, help=help, **limits)


def to_file(help: str, *flags: str, is_folder: bool = False) -> Any:
    """An option for a file to write; whether it can be written is checked before the work."""

    def check(param: typer.CallbackParam, path: Path | None) -> Path | None:
        if path is None:
            return None
        try:
            if path.is_dir() and not is_folder:
                raise IsADirectoryError(None, "it is a folder")
            places = [path, *path.absolute().parents][not is_folder :]
            tempfile.TemporaryFile(dir=next(place for place in places if place.exists())).close()
        except OSError as error:
            kind = "folder" if is_folder else "file"
            raise WordError(
                f"`{param.opts[0]}` must be a {kind} that can be written (got {path}: "
                f"{error.strerror}). Name another."
            ) from error
        return path

    return opt(help, *flags, callback=check)


def to_folder(help: str) -> Any:
    """The option ``--out`` for a folder to write to; it is made if it is missing."""
    return to_file(help, "--out", is_folder=True)


def _load(files: Words) -> Words:
    from nicegnn.explain.registry import load_plugins

    with typed_words("docs/own-things.md says more."):
        load_plugins(*(files or ()))
    return files


Quiet = Annotated[bool, opt("Show no progress.", "--quiet", "-q")]
Plugins = Annotated[
    Words,
    opt("Python file that adds names; repeat.", "--plugin", callback=_load, is_eager=True),
]


def takes(kind: type[Settings]) -> Callable[[Callable[..., Any]], Any]:
    """Gives a command an option for each field of its settings, which it gets as ``config``."""
    options = _options(kind)

    def taking(command: Callable[..., Any]) -> Callable[..., Any]:
        own = inspect.signature(command, eval_str=True).parameters.values()
        extra = [one.replace(kind=_KEYWORD) for one in own if one.name != "config"]

        @wraps(command)
        def run(**given: Any) -> Any:
            typed = {place: given.pop(one.name) for place, one in options.items()}
            typed = {place: value for place, value in typed.items() if value is not None}
            if "molecules" in options and "molecules" not in typed:
                raise WordError(
                    "`MOLECULES` must be SMILES in quotes or a file (got none). Try --help."
                )
            try:
                return command(config=kind().with_(**typed), **given)
            except KeyboardInterrupt:
                typer.echo("Stopped; the same command goes on from there.", err=True)
                sys.exit(STOPPED)

        run.__signature__ = inspect.Signature([*options.values(), *extra])  # type: ignore[attr-defined]
        return run

    return taking


def _options(kind: type[Settings], inside: str = "") -> dict[str, inspect.Parameter]:
    """Returns the option of each field by its place in the settings, as `with_` names it."""
    help_of, usual = dict(_COMMENT.findall(inspect.getsource(kind))), kind()
    found: dict[str, inspect.Parameter] = {}
    for name, hint in get_type_hints(kind).items():
        if isinstance(hint, type) and issubclass(hint, Settings):
            found |= _options(hint, f"{name}__")
        else:
            found[f"{inside}{name}"] = _option(name, hint, getattr(usual, name), help_of[name])
    return found


def _option(name: str, hint: Any, default: Any, help: str) -> inspect.Parameter:
    """Returns the option of a field, or the argument ``molecules``; it is None if not typed."""
    help = f"{help[0].upper()}{help[1:]}."
    if get_origin(hint) is Literal:
        help, hint = f"{', '.join(get_args(hint))}. {help}", str
    flag = f"--{name.replace('_', '-')}"
    flag += f"/--no-{name}" if hint is bool and default else ""
    shown = str(default) if default and hint is not bool else False
    about = opt(help, *_SHORT.get(name, ()), flag, show_default=shown)
    if name == "molecules":
        about = typer.Argument(help=help)
    hint = list[str] if get_origin(hint) is tuple else hint
    return inspect.Parameter(name, _KEYWORD, default=None, annotation=Annotated[hint | None, about])
