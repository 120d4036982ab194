"""What commands about molecules share: options, settings, endings."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from nicegnn.cli import options
from nicegnn.cli.options import Words, opt, split_commas
from nicegnn.errors import NicegnnError

if TYPE_CHECKING:
    from nicegnn.config import Settings
    from nicegnn.pretrained import Pretrained
    from nicegnn.screening.reading import Record

    Chosen = TypeVar("Chosen", bound=Settings)

REJECTED, STOPPED = 3, 130
CODES = (
    "Exit codes: 0 all went well; 1 an error; 2 a wrong word on the command line; 3 finished, but "
    "some molecules were rejected (rejects.csv says why); 130 stopped by Ctrl-C."
)

Json = options.Json
Saved = Annotated[
    Path | None, opt("Settings of an earlier run (its settings.toml); what is typed wins.")
]
Quiet = Annotated[bool, opt("Show no progress.", "--quiet", "-q")]
SmilesColumn = Annotated[str, opt("Column of the SMILES; by default found by its name.")]
Model = Annotated[
    str,
    opt(
        "Name (see `nicegnn models`), file of `nicegnn train`, chemprop:PATH, or your "
        "module:function.",
        "-m",
        "--model",
    ),
]
Weights = Annotated[str, opt("Safetensors file with the weights of a module:function.")]
Featurizer = Annotated[
    str, opt("How SMILES become graphs, for a module:function: a name, or module:function.")
]
Task = Annotated[str, opt("Of a module:function: classification, binary (one logit), regression.")]
Classes = Annotated[Words, opt("Names of the classes, in order: a,b.")]
Column = Annotated[str, opt("Task of a Chemprop model, by its name in the training table.")]
Background = Annotated[
    str, opt("File of molecules like those that a Chemprop model was trained on.")
]
Trust = Annotated[
    bool, opt("The file of a Chemprop model may run code when it is read.", "--trust")
]
Method = Annotated[
    str, opt("Name (see `nicegnn explainers`), or file of `nicegnn fit`.", "--explainer", "-e")
]
Device = Annotated[str, opt("cpu or cuda.")]

MORE = "`nicegnn {} --help` says more."


def chosen(ctx: typer.Context, file: Path | None, usual: Chosen, *, part: str = "") -> Chosen:
    """Returns settings: the usual ones, then those of a file, then what was typed.

    An option is the setting of its own name: of the whole, else of its part ``model`` or
    ``output``; if `part` is named, of that one alone.
    """
    settings = usual if file is None else type(usual).from_toml(file)
    defaults = usual.to_dict()
    places = {
        **{f"{one}__{name}": name for one in ("output", "model") for name in defaults.get(one, ())},
        **{name: name for name, value in defaults.items() if not isinstance(value, dict)},
    }
    keys = {name: key for key, name in places.items() if key.startswith(part)}
    typed: dict[str, Any] = {}
    for name, key in keys.items():
        source = ctx.get_parameter_source(name) if name in ctx.params else None
        if source is not None and source.name == "COMMANDLINE":
            value = ctx.params[name]
            value = split_commas(value) if name == "classes" else value
            typed[key] = tuple(value) if isinstance(value, list) else value
    return settings.with_(**typed)


def need(name: str, value: str, example: str) -> None:
    """Raises `WordError` if an argument was neither typed nor in the settings."""
    if not value:
        what = "a file, or a folder of `nicegnn explain`" if name == "SOURCE" else "a file"
        raise options.WordError(f"`{name}` must be {what} (got none). Try: nicegnn {example}")


def about(subject: Pretrained) -> str:
    """Returns what explains what, in two lines."""
    explainer = subject.explainer
    background = getattr(explainer, "background", None)
    how = "fitted" if explainer.is_fitted else "without a fit"
    if background is not None:
        how = f"with a background of {background.num_graphs:,} molecules"
    words = f"Model {subject.card.name}: {subject.card.in_words()}"
    return f"{words}\nExplained by {explainer.name}, {how}."


def one_thread() -> None:
    """Molecules are small: more threads mostly wait for each other, and for other programs."""
    import torch

    torch.set_num_threads(1)


def write_settings(out: Path, config: Settings) -> None:
    """Writes the settings beside a file that a command has written."""
    from nicegnn.store import write_text

    name = out.name.removesuffix(".safetensors")
    write_text(out.with_name(f"{name}.settings.toml"), config.to_toml())


def end_with(rejects: Sequence[tuple[Record, str]]) -> None:
    """Tells about rejected molecules, and ends the command with their code."""
    for record, reason in rejects[:5]:
        tell(f"Row {record.row} was left out: {reason}")
    if rejects:
        tell(f"{len(rejects)} molecules were left out.")
        raise typer.Exit(REJECTED)


def say(text: str, json: bool) -> None:
    if not json:
        typer.echo(text)


def tell(text: str) -> None:
    typer.echo(text, err=True)


@contextmanager
def readable_end() -> Iterator[None]:
    """Ends a command in a readable way when a package is missing or Ctrl-C is pressed."""
    try:
        with options.typed_words(""):  # settings, files and columns were typed
            yield
    except ImportError as error:
        if "pip install" not in str(error):
            raise
        raise NicegnnError(str(error)) from error
    except KeyboardInterrupt:
        tell("Stopped. What is finished is kept; the same command goes on from there.")
        sys.exit(STOPPED)
    except BrokenPipeError:  # whoever reads has seen enough, such as `head`
        raise
    except OSError as error:
        raise NicegnnError(f"{error.filename or 'A file'}: {error.strerror or error}.") from error
