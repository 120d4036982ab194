"""Very many molecules: ``nicegnn explain-many``."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import Annotated

import typer

from nicegnn.cli import molecule_options as common
from nicegnn.cli import options
from nicegnn.cli.options import opt, to_folder


def explain_many(
    ctx: typer.Context,
    molecules: Annotated[
        str, typer.Argument(help="File: .csv .tsv .smi .sdf .parquet (text also .gz).")
    ] = "",
    out: Annotated[Path | None, to_folder("Folder for the shards.")] = None,
    smiles_column: common.SmilesColumn = "",
    id_column: Annotated[str, opt("Column with names of molecules; by default the row.")] = "",
    model: common.Model = "",
    weights: common.Weights = "",
    featurizer: common.Featurizer = "",
    task: common.Task = "classification",
    classes: common.Classes = None,
    explainer: Annotated[
        str, opt("Name (see `nicegnn explainers`), or file of `nicegnn fit`.", "--explainer", "-e")
    ] = "",
    atoms: Annotated[bool, opt("Score atoms too, which takes longer.", "--atoms")] = False,
    student: Annotated[
        str, opt("no; yes: the explainer's student alone; auto: the teacher where it is unsure.")
    ] = "no",
    shard_size: Annotated[
        int, opt("Molecules per file; a multiple of the batch size.", min=1)
    ] = 1024,
    batch_size: Annotated[int, opt("Molecules explained together.", min=1)] = 256,
    engine: Annotated[str, opt("local (worker processes) or ray (a cluster).")] = "local",
    workers: Annotated[
        int, opt("Worker processes, or shards at a time on Ray; 0: one per processor.", min=0)
    ] = 0,
    address: Annotated[str | None, opt("Ray cluster: auto, local, or host:port.")] = None,
    gpus: Annotated[
        float | None, opt("Share of a GPU per shard on Ray; by default 1 for --device cuda.", min=0)
    ] = None,
    overwrite: Annotated[bool, opt("Delete results of another run in the folder.")] = False,
    device: Annotated[str, opt("cpu or cuda.")] = "cpu",
    seed: options.AnySeed = 0,
    settings: common.Saved = None,
    json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Explain very many molecules; Parquet files with one row per molecule, no pictures.

    Reads the file as a stream, in little memory. After a stop or a crash the same command goes on.

    \b
    nicegnn explain-many library.csv.gz --out explained --workers 8
    nicegnn explain-many library.smi --model mine.safetensors --out explained --device cuda
    nicegnn explain-many library.parquet --out /shared/explained --engine ray --address auto
    """
    with common.readable_end():
        from nicegnn.screening.engines import make_engine
        from nicegnn.screening.many import ManyConfig
        from nicegnn.screening.many import explain_many as run
        from nicegnn.screening.reading import Reader

        own = ("molecules", "smiles_column", "id_column", "atoms", "student")
        config = common.chosen(
            ctx,
            settings,
            ManyConfig(),
            {
                **{name: name for name in (*own, "shard_size", "batch_size")},
                **{name: f"model__{name}" for name in (*common.OF_MODEL, "explainer")},
            },
        )
        if not config.molecules or out is None:
            raise options.WordError(
                f"`{'--out' if config.molecules else 'MOLECULES'}` must be named (got none). Try: "
                "nicegnn explain-many library.csv --out explained"
            )
        reader = Reader(
            config.molecules, smiles_column=config.smiles_column, id_column=config.id_column
        )
        where = make_engine(
            engine, workers=workers, address=address, device=config.model.device, gpus=gpus
        )
        with options.typed_words(common.MORE.format("explain-many")):
            found = run(reader, config, out, engine=where, overwrite=overwrite, progress=not quiet)
        if json:
            typer.echo(json_text.dumps(found.to_dict()))
        else:
            again = f" ({found.resumed} by an earlier run)" if found.resumed else ""
            typer.echo(
                f"{found.num_explained} of {found.num_molecules} molecules explained{again}."
            )
            if found.resumed < found.num_molecules:
                shares = ", ".join(f"{name} {share:.0%}" for name, share in found.shares.items())
                typer.echo(
                    f"{found.molecules_per_second:,.1f} molecules per second; time of the workers: "
                    f"{shares}."
                )
            for what, path in found.files.items():
                typer.echo(f"  {what}: {path}")
        if found.num_rejected:
            common.tell(f"{found.num_rejected} rejected; {found.files['rejects']} says why.")
            raise typer.Exit(common.REJECTED)
