"""Molecules: ``nicegnn explain | fit | train | summary | models``."""

from __future__ import annotations

import json as json_text
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from nicegnn.cli import options
from nicegnn.cli.options import Words, opt, split_commas, to_file, to_folder
from nicegnn.errors import NicegnnError

if TYPE_CHECKING:
    from nicegnn.config import Settings
    from nicegnn.pretrained import Pretrained
    from nicegnn.screening.reading import Molecules, Record
    from nicegnn.screening.run import ExplainConfig

    Chosen = TypeVar("Chosen", bound=Settings)

REJECTED, STOPPED = 3, 130
CODES = (
    "Exit codes: 0 all went well; 1 an error; 2 a wrong word on the command line; 3 finished, but "
    "some molecules were rejected (rejects.csv says why); 130 stopped by Ctrl-C."
)

Json = Annotated[bool, opt("Print the result as JSON, and nothing else, on stdout.", "--json")]
Saved = Annotated[
    Path | None, opt("Settings of an earlier run (its settings.toml); what is typed wins.")
]
Quiet = Annotated[bool, opt("Show no progress.", "--quiet", "-q")]
SmilesColumn = Annotated[str, opt("Column of the SMILES; by default found by its name.")]
Model = Annotated[
    str,
    opt(
        "Name (see `nicegnn models`), file of `nicegnn train`, or your module:function.",
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
Seed = Annotated[int, opt("Seed of everything random.")]


def explain(
    ctx: typer.Context,
    molecules: Annotated[
        Words,
        typer.Argument(
            help="SMILES in quotes, or a file: .csv .tsv .smi .sdf .parquet (also .gz)."
        ),
    ] = None,
    out: Annotated[Path | None, to_folder("Folder for tables and pictures.")] = None,
    smiles_column: SmilesColumn = "",
    id_column: Annotated[str, opt("Column with names of molecules; by default the row.")] = "",
    model: Model = "",
    weights: Weights = "",
    featurizer: Featurizer = "",
    task: Task = "classification",
    classes: Classes = None,
    explainer: Annotated[
        str, opt("Name (see `nicegnn explainers`), or file of `nicegnn fit`.", "--explainer", "-e")
    ] = "",
    substructures: Annotated[
        Words,
        opt("Flag for a group: NAME=SMARTS, or a name such as amide; repeat.", "--substructure"),
    ] = None,
    svg: Annotated[bool, opt("One picture file per molecule.", "--svg")] = False,
    gallery: Annotated[int, opt("Most molecules in gallery.html; 0 writes none.", min=0)] = 5000,
    format: Annotated[str, opt("Tables as csv or parquet.")] = "csv",
    shard_size: Annotated[int, opt("Molecules explained and written together.", min=1)] = 256,
    overwrite: Annotated[bool, opt("Delete results of another run in the folder.")] = False,
    device: Annotated[str, opt("cpu or cuda.")] = "cpu",
    seed: Seed = 0,
    settings: Saved = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say which bonds and atoms of molecules a model's predictions rest on.

    \b
    nicegnn explain "CC(=O)Nc1ccc(O)cc1"
    nicegnn explain mols.csv --out explained --substructure amide
    nicegnn explain mols.csv --model my_code:make --weights w.safetensors --featurizer pyg --out x
    """
    with readable_end():
        from nicegnn.screening.loading import load_words
        from nicegnn.screening.run import ExplainConfig, screen

        config = chosen(
            ctx,
            settings,
            ExplainConfig(),
            {
                **{name: name for name in ("molecules", "smiles_column", "id_column")},
                **{name: f"model__{name}" for name in OF_MODEL},
                "explainer": "model__explainer",
                **{n: f"output__{n}" for n in ("svg", "gallery", "format", "shard_size")},
                "substructures": "output__substructures",
            },
        )
        molecules_, is_file = _molecules(config)
        if is_file and out is None:
            raise options.WordError(
                "`--out` must name a folder for the results of a file (got none)."
            )
        with options.typed_words(HELP.format("explain")):
            subject = load_words(config.model)
        if out is None:
            _show_few(molecules_, subject, config, json)
            return
        if not is_file:
            config = config.with_(output__svg=True)
        say(about(subject), json)
        found = screen(
            molecules_,
            subject,
            out,
            config.output,
            seed=config.model.seed,
            settings=config.to_toml(),
            overwrite=overwrite,
            progress=not quiet,
        )
        if json:
            typer.echo(json_text.dumps({"model": subject.card.to_dict(), **found.to_dict()}))
        else:
            again = f" ({found.resumed} by an earlier run)" if found.resumed else ""
            typer.echo(
                f"{found.num_explained} of {found.num_molecules} molecules explained{again}."
            )
            for what, path in found.files.items():
                typer.echo(f"  {what}: {path}")
        if found.num_rejected:
            tell(f"{found.num_rejected} rejected; {found.files['rejects']} says why.")
            raise typer.Exit(REJECTED)


def fit(
    ctx: typer.Context,
    molecules: Annotated[str, typer.Argument(help="File of molecules like those to explain.")] = "",
    out: Annotated[Path, to_file("File for the fitted explainer.")] = Path("explainer.safetensors"),
    smiles_column: SmilesColumn = "",
    model: Model = "",
    weights: Weights = "",
    featurizer: Featurizer = "",
    task: Task = "classification",
    classes: Classes = None,
    explainer: Annotated[str, opt("Method that learns.", "--explainer", "-e")] = "nice",
    thorough: Annotated[bool, opt("The full fit of NICE, about fifty times the work.")] = False,
    most: Annotated[int, opt("Most molecules to fit on.", min=1)] = 2000,
    device: Annotated[str, opt("cpu or cuda.")] = "cpu",
    seed: Seed = 0,
    settings: Saved = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fit an explainer to a model, for better and faster explanations of many molecules.

    \b
    nicegnn fit mols.csv --model my_code:make --weights w.safetensors --featurizer pyg
    nicegnn explain mols.csv --model my_code:make ... --explainer explainer.safetensors --out x
    """
    with readable_end():
        from nicegnn.screening.learning import FitConfig, fit_explainer
        from nicegnn.screening.loading import load_words
        from nicegnn.screening.reading import Reader

        config = chosen(
            ctx,
            settings,
            FitConfig(),
            {
                **{n: n for n in ("molecules", "smiles_column", "explainer", "thorough", "most")},
                **{name: f"model__{name}" for name in OF_MODEL},
            },
        )
        _need(config.molecules, "fit")
        reader = Reader(config.molecules, smiles_column=config.smiles_column)
        with options.typed_words(HELP.format("fit")):
            subject = load_words(config.model)
            found, rejects = fit_explainer(reader, subject, config, progress=not quiet)
        found.save(out)
        _write_settings(out, config)
        report = getattr(found, "fit_report", None)
        status = "" if report is None else str(report.status)
        result = {
            "explainer": str(out),
            "method": config.explainer,
            "model": subject.card.name,
            "num_rejected": len(rejects),
            **({"status": status} if status else {}),
        }
        if json:
            typer.echo(json_text.dumps(result))
        else:
            typer.echo(f"{about(subject)}\nFitted {config.explainer}: {out}")
            if status:
                typer.echo(f"Its gates are {status}. {report.advice if report else ''}".strip())
        _end_with(rejects)


def train(
    ctx: typer.Context,
    molecules: Annotated[str, typer.Argument(help="File of molecules with labels.")] = "",
    label: Annotated[str, opt("Column of the labels or values.", "--label", "-y")] = "",
    out: Annotated[Path, to_file("File for the model.")] = Path("model.safetensors"),
    smiles_column: SmilesColumn = "",
    task: Annotated[str, opt("auto (as the column looks), classification or regression.")] = "auto",
    kind: Annotated[str, opt("gine, or gin, which reads no bond features.")] = "gine",
    featurizer: Annotated[
        str, opt("How SMILES become graphs: a name, or module:function.")
    ] = "rich",
    split: Annotated[
        str, opt("scaffold (test molecules have rare scaffolds) or random.")
    ] = "scaffold",
    hidden_size: Annotated[int, opt("Width of the layers.", min=1)] = 32,
    epochs: Annotated[int, opt("Most epochs.", min=1)] = 100,
    stop_after: Annotated[int, opt("Epochs without improvement before it ends.", min=1)] = 20,
    fit: Annotated[bool, opt("Also fit NICE to the model.")] = True,
    name: Annotated[str, opt("Name on the model's card.")] = "",
    question: Annotated[str, opt("What it predicts, in words, for its card.")] = "",
    classes: Classes = None,
    unit: Annotated[str, opt("Unit of a value.")] = "",
    device: Annotated[str, opt("cpu or cuda.")] = "cpu",
    seed: Seed = 0,
    settings: Saved = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a model on molecules with labels, judge it on held-out ones, and fit its explainer.

    \b
    nicegnn train mols.csv --label active --out active.safetensors
    nicegnn explain new.csv --model active.safetensors --out explained
    """
    with readable_end():
        from nicegnn.screening.learning import LearnConfig, learn
        from nicegnn.screening.reading import Reader

        names = [*("molecules", "label", "smiles_column", "task", "kind", "featurizer", "split")]
        names += ["hidden_size", "epochs", "stop_after", "fit", "name", "question", "classes"]
        config = chosen(
            ctx, settings, LearnConfig(), {n: n for n in (*names, "unit", "device", "seed")}
        )
        _need(config.molecules, "train")
        if not config.label:
            columns = Reader(config.molecules, smiles_column=config.smiles_column).columns
            raise options.WordError(f"`--label` must be one of {tuple(columns)} (got none).")
        reader = Reader(
            config.molecules, smiles_column=config.smiles_column, columns=(config.label,)
        )
        found = learn(reader, out, config, progress=not quiet, say=lambda text: say(text, json))
        _write_settings(out, config)
        card = found.card
        if json:
            parts = {"card": card.to_dict(), "files": found.files}
            typer.echo(json_text.dumps({**parts, "num_rejected": len(found.rejects)}))
        else:
            typer.echo(f"{card.name}: {card.in_words()}")
            typer.echo(f"Split: {card.split}")
            for what, path in found.files.items():
                typer.echo(f"  {what}: {path}")
            typer.echo(f"Next: nicegnn explain MOLECULES --model {out} --out explained")
        _end_with(found.rejects)


def summary(
    source: Annotated[
        Path, typer.Argument(help="Folder of `nicegnn explain`, or a file of molecules.")
    ],
    out: Annotated[Path | None, to_folder("Folder for the results; by default the source.")] = None,
    model: Model = "",
    smiles_column: SmilesColumn = "",
    min_molecules: Annotated[int, opt("Leave out substructures of fewer molecules.", min=1)] = 3,
    top: Annotated[int, opt("Rows to print.", min=0)] = 15,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Rank substructures by how much predictions for many molecules rest on them.

    \b
    nicegnn summary explained
    nicegnn summary mols.csv --model mutagenicity --out explained
    """
    with readable_end():
        from nicegnn.screening.summary import summarise, write_summary

        folder, rejected = source, 0
        if not source.is_dir():
            if out is None:
                raise options.WordError(
                    f"`--out` must name a folder for the explanations of {source} (got none)."
                )
            folder, rejected = out, _explained_first(source, out, model, smiles_column, quiet)
        lines = summarise(folder, min_molecules=min_molecules)
        files = write_summary(out or folder, lines, f"Substructures of {source.name}")
        if json:
            typer.echo(json_text.dumps({"lines": [vars(one) for one in lines], "files": files}))
        else:
            for one in lines[:top]:
                typer.echo(
                    f"{one.lift:+.3f}  {one.fragment} ({one.kind}), {one.prediction}: "
                    f"{one.molecules} molecules, score {one.score:.3f} ± {one.spread:.3f}"
                )
            if not lines:
                typer.echo(f"No substructure is in {min_molecules} molecules; see --min-molecules.")
            for what, path in files.items():
                typer.echo(f"  {what}: {path}")
        if rejected:
            raise typer.Exit(REJECTED)


def _explained_first(source: Path, out: Path, model: str, column: str, quiet: bool) -> int:
    """Explains a file of molecules into a folder; returns how many were rejected."""
    from nicegnn.screening.loading import ModelConfig, load_words
    from nicegnn.screening.reading import Reader
    from nicegnn.screening.run import ExplainConfig, screen

    reader = Reader(source, smiles_column=column)
    with options.typed_words(HELP.format("summary")):
        config = ModelConfig(model=model) if model else ModelConfig()
        subject = load_words(config)
        whole = ExplainConfig(molecules=(str(source),), smiles_column=column, model=config)
        found = screen(reader, subject, out, settings=whole.to_toml(), progress=not quiet)
    return found.num_rejected


def models(
    name: Annotated[str, typer.Argument(help="One of them, to see its card.")] = "",
    json: Json = False,
) -> None:
    """List the trained models that come with nicegnn, or show the card of one.

    \b
    nicegnn models
    nicegnn models benzene
    """
    from nicegnn.config import check_choice
    from nicegnn.pretrained import DEFAULT, NAMES, card_of

    if name:
        with options.typed_words():
            check_choice("name", name, NAMES)
    cards = {one: card_of(one) for one in NAMES if name in ("", one)}
    if json:
        typer.echo(json_text.dumps({one: card.to_dict() for one, card in cards.items()}))
    elif name:
        typer.echo(cards[name].to_toml().rstrip())
    else:
        for one, card in cards.items():
            note = " (default)" if one == DEFAULT else ""
            typer.echo(f"{one}{note}: {card.in_words()}")


OF_MODEL = ("model", "weights", "featurizer", "task", "classes", "device", "seed")
HELP = "`nicegnn {} --help` says more."


def chosen(
    ctx: typer.Context, file: Path | None, usual: Chosen, names: Mapping[str, str]
) -> Chosen:
    """Returns settings: the usual ones, then those of a file, then what was typed."""
    found = usual if file is None else type(usual).from_toml(file)
    typed: dict[str, Any] = {}
    for name, key in names.items():
        source = ctx.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            value = ctx.params[name]
            value = split_commas(value) if name == "classes" else value
            typed[key] = tuple(value) if isinstance(value, list) else value
    return found.with_(**typed)


def _molecules(config: ExplainConfig) -> tuple[Molecules, bool]:
    """Returns the molecules to explain, and whether they come from a file."""
    from nicegnn.screening.reading import Reader, TypedSmiles, is_file_name

    words = config.molecules
    if not words:
        raise options.WordError(
            "`MOLECULES` must be a SMILES in quotes or a file (got none). Try: nicegnn explain "
            '"CC(=O)Nc1ccc(O)cc1"'
        )
    if not any(is_file_name(word) for word in words):
        return TypedSmiles(words), False
    if len(words) > 1:
        raise options.WordError(f"`MOLECULES` must be one file, or SMILES alone (got {words}).")
    columns = {"smiles_column": config.smiles_column, "id_column": config.id_column}
    return Reader(words[0], **columns), True


def _need(molecules: str, command: str) -> None:
    if not molecules:
        raise options.WordError(
            f"`MOLECULES` must be a file (got none). Try: nicegnn {command} mols.csv --help"
        )


def about(subject: Pretrained) -> str:
    how = "fitted" if subject.explainer.is_fitted else "without a fit"
    words = f"Model {subject.card.name}: {subject.card.in_words()}"
    return f"{words}\nExplained by {subject.explainer.name}, {how}."


def _show_few(molecules: Molecules, subject: Pretrained, config: ExplainConfig, json: bool) -> None:
    """Explains typed SMILES: words on the terminal, and one picture each."""
    from nicegnn.screening.explaining import explain_records
    from nicegnn.screening.fragments import find_patterns
    from nicegnn.screening.gallery import picture, prediction_words
    from nicegnn.screening.shards import rows_of
    from nicegnn.store import write_text

    records = list(molecules)
    patterns = find_patterns(config.output.substructures)
    tables = explain_records(records, subject, substructures=patterns, seed=config.model.seed)
    say(about(subject), json)
    results = []
    for molecule in rows_of(tables["molecules"]):
        own = {
            name: sorted(
                (row for row in rows_of(tables[name]) if row["row"] == molecule["row"]),
                key=lambda row: int(row["rank"]),
            )
            for name in ("bonds", "atoms")
        }
        path = Path(f"explained-{molecule['row']}.svg" if len(records) > 1 else "explained.svg")
        write_text(path, picture(molecule, own["bonds"]).svg)
        results.append({**molecule, **own, "picture": str(path)})
        if not json:
            _print_molecule(
                molecule, own["bonds"], own["atoms"], prediction_words(molecule), subject
            )
            typer.echo(f"  picture: {path}")
    rejects = list(rows_of(tables["rejects"]))
    if json:
        card = subject.card.to_dict()
        text = json_text.dumps({"model": card, "molecules": results, "rejects": rejects})
        typer.echo(text.replace("NaN", "null"))
    for one in rejects:
        tell(one["reason"])
    if rejects:
        raise typer.Exit(REJECTED if results else 1)


def _print_molecule(
    molecule: Mapping[str, Any],
    bonds: Sequence[Mapping[str, Any]],
    atoms: Sequence[Mapping[str, Any]],
    prediction: str,
    subject: Pretrained,
) -> None:
    unit = f" {subject.card.unit}" if subject.card.unit else ""
    typer.echo(f"\n{molecule['smiles']}\n  prediction: {prediction}{unit}")
    if bonds:
        typer.echo("  bonds it rests on most:")
    for bond in bonds[:5]:
        where = f", {bond['groups']}" if bond["groups"] else ""
        typer.echo(f"    {bond['name']:<10} {bond['score']:.3f}  {bond['type']}{where}")
    if atoms:
        named = ", ".join(f"{a['element']}{a['atom']} {a['score']:.3f}" for a in atoms[:5])
        typer.echo(f"  atoms it rests on most: {named}")
    if molecule["status"] != "ok":
        typer.echo(f"  status: {molecule['status']}; {_advice(molecule['status'])}")


def _advice(status: str) -> str:
    from nicegnn.explain.explanation import ADVICE

    words = {str(flag.name).lower().replace("_", " "): text for flag, text in ADVICE.items()}
    return " ".join(words[one] for one in status.split(", "))


def _write_settings(out: Path, config: Settings) -> None:
    """Writes the settings beside a file that a command has written."""
    from nicegnn.store import write_text

    name = out.name.removesuffix(".safetensors")
    write_text(out.with_name(f"{name}.settings.toml"), config.to_toml())


def _end_with(rejects: Sequence[tuple[Record, str]]) -> None:
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
    except OSError as error:
        raise NicegnnError(f"{error.filename or 'A file'}: {error.strerror or error}.") from error
