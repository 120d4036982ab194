"""Options from settings: each field of a settings class is an option, its comment the help."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from nicegnn.cli.options import Words, opt, split_commas
from nicegnn.config import Settings

REJECTED, STOPPED = 3, 130
CODES = (
    "Exit codes: 0 all went well; 1 an error; 2 a wrong word on the command line; 3 finished, but "
    "some molecules were rejected (rejects.csv says why); 130 stopped by Ctrl-C."
)
_COMMENT = re.compile(r"^    (\w+): .*?  # (.+)$", re.MULTILINE)
#: Options with a short name, and one that is repeated and so has the name of one of many.
_FLAGS = {
    "model": ("-m", "--model"),
    "explainer": ("-e", "--explainer"),
    "label": ("-y", "--label"),
    "substructures": ("--substructure",),
}
_WITH_COMMAS = ("classes", "label")  # whose words may also be typed as a,b
Saved = Annotated[
    Path | None, opt("Settings of an earlier run (its settings.toml); what is typed wins.")
]
Quiet = Annotated[bool, opt("Show no progress.", "--quiet", "-q")]


def takes(kind: type[Settings], *, part: str = "") -> Callable[[Callable[..., Any]], Any]:
    """Gives a command an option for each field of its settings, which it gets as ``config``.

    Fields of parts are options too; if a `part` is named, they alone are. ``--settings`` reads the
    usual values from a file. Ctrl-C ends the command in one line.
    """
    parts = {
        name: hint
        for name, hint in get_type_hints(kind).items()
        if isinstance(hint, type) and issubclass(hint, Settings)
    }
    places = {  # option to its place in the settings, and the class that has it
        one.name: (f"{inside}{one.name}", owner)
        for inside, owner in {"": kind, **{f"{name}__": one for name, one in parts.items()}}.items()
        for one in fields(owner)
        if (inside or one.name not in parts) and inside.startswith(part)
    }

    def taking(command: Callable[..., Any]) -> Callable[..., Any]:
        own = inspect.signature(command, eval_str=True).parameters.values()
        added = [_option(name, owner) for name, (_, owner) in places.items()]
        ctx = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
        saved = inspect.Parameter("settings", ctx.kind, default=None, annotation=Saved)
        rest = [one.replace(kind=ctx.kind) for one in own if one.name != "config"]

        @wraps(command)
        def run(**given: Any) -> Any:
            ctx, file = given.pop("ctx"), given.pop("settings")
            config = kind() if file is None else kind.from_toml(file)
            typed: dict[str, Any] = {}
            for name, (key, _) in places.items():
                value, source = given.pop(name), ctx.get_parameter_source(name)
                if source is not None and source.name == "COMMANDLINE":
                    value = split_commas(value) if name in _WITH_COMMAS else value
                    typed[key] = tuple(value) if isinstance(value, list) else value
            try:
                return command(config=config.with_(**typed), **given)
            except KeyboardInterrupt:
                said = "Stopped. What is finished is kept; the same command goes on from there."
                typer.echo(said, err=True)
                sys.exit(STOPPED)

        run.__signature__ = inspect.Signature([ctx, *added, *rest, saved])  # type: ignore[attr-defined]
        return run

    return taking


def _option(name: str, owner: type[Settings]) -> inspect.Parameter:
    """Returns the option of a field, or the argument ``molecules``."""
    hint, default = get_type_hints(owner)[name], getattr(owner(), name)
    help = dict(_COMMENT.findall(inspect.getsource(owner))).get(name, "")
    help = f"{help[0].upper()}{help[1:]}." if help else ""
    if get_origin(hint) is Literal:
        help = f"{', '.join(get_args(hint))}. {help}"
        hint = str
    if get_origin(hint) is tuple:
        hint, default = Words, None
    flags = _FLAGS.get(name, (f"--{name.replace('_', '-')}",))
    if hint is bool and default:
        flags = (f"{flags[0]}/--no-{name}",)
    about = typer.Argument(help=help) if name == "molecules" else opt(help, *flags)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[hint, about]
    )


def one_thread() -> None:
    """Molecules are small: more threads mostly wait for each other, and for other programs."""
    import torch

    torch.set_num_threads(1)
