"""`load_dataset`: a benchmark by name, split and ready for PyG."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from nicegnn.datasets.dataset import MoleculeDataset, Origin
from nicegnn.datasets.prepare import OnDamage, Prepared, prepare_dataset
from nicegnn.datasets.registry import FAMILIES, Facts, facts_of
from nicegnn.datasets.scaffolds import scaffold_groups
from nicegnn.datasets.splits import num_parted, published_split, random_split, scaffold_split
from nicegnn.datasets.tensors import smiles_at
from nicegnn.errors import ConfigError


def load_dataset(
    name: str,
    *,
    root: str | Path | None = None,
    cache: str | Path | None = None,
    split: str | None = None,
    seed: int = 0,
    subset: str = "paper",
    layout: str | None = None,
    on_damage: OnDamage = "error",
    progress: bool = False,
) -> MoleculeDataset:
    """Returns a benchmark dataset; the first call prepares it, later ones read the cache.

    Args:
        name: a key of `DATASETS`.
        root: the data folder; else ``NICEGNN_DATA``, else a folder in the user's cache.
        cache: where prepared data go; else ``NICEGNN_CACHE``, else the user's cache.
        split: ``"random"`` (80/10/10 by `seed`, the paper's), ``"scaffold"`` (Bemis-Murcko), or,
            for B-XAIC, ``"0"`` to ``"4"``, its own. By default ``"0"`` for B-XAIC, else
            ``"random"``.
        seed: of the random split.
        subset: ``"paper"``, or ``"all"`` for every molecule of the files; the two differ for
            ``alkane-carbonyl`` (1,125 of 4,326).
        layout: ``"tidy"`` or ``"published"`` to insist on one form of the files.
        on_damage: see `prepare_dataset`.
        progress: show a bar on stderr while preparing.

    Raises:
        ConfigError: If a name is unknown.
        MissingDataError: If the files are not there; the message says what to put where.
        DamagedFileError: If a file is damaged.
    """
    facts = facts_of(name)
    split = split or ("0" if FAMILIES[facts.family].num_splits else "random")
    _check_split(facts, split)
    if subset not in ("paper", "all"):
        raise ConfigError(f"subset: expected 'paper' or 'all', got {subset!r}.")
    if subset == "all" and facts.name == "mutagenicity":
        raise ConfigError(
            "subset: expected 'paper' for mutagenicity, got 'all'. The other 2,569 graphs carry a "
            "class that contradicts their matches, so they have no truth."
        )
    prepared = prepare_dataset(
        name,
        root=root,
        cache=cache,
        layout=layout,
        on_damage=on_damage,
        progress=progress,
    )
    is_kept = prepared.tensors["is_kept"]
    rows = (torch.ones_like(is_kept) if subset == "all" else is_kept).nonzero().view(-1)
    twin = prepared.tensors["twin"][rows]
    part, num_moved = _split(facts, prepared, rows, twin, split, seed)
    report = replace(
        prepared.report,
        num_graphs=rows.numel(),
        left_out=prepared.report.left_out if subset == "paper" else {},
        num_twins=rows.numel() - len(set(twin.tolist())),
        num_moved=num_moved,
        num_parted=num_parted(part, twin),
    )
    text = f"random, seed {seed}" if split == "random" else split
    origin = Origin(facts, report, text, prepared.is_stand_in)
    return MoleculeDataset(prepared.tensors, rows, part, origin)


def _check_split(facts: Facts, split: str) -> None:
    names = ["random", *(["scaffold"] if facts.family != "mutagenicity" else [])]
    names += [str(k) for k in range(FAMILIES[facts.family].num_splits)]
    if split not in names:
        raise ConfigError(
            f"split: expected one of {', '.join(names)} for {facts.name}, got {split!r}."
            + (" Mutagenicity has no SMILES to take scaffolds from." if split == "scaffold" else "")
        )


def _split(
    facts: Facts, prepared: Prepared, rows: Tensor, twin: Tensor, split: str, seed: int
) -> tuple[Tensor, int]:
    if split == "random":
        return random_split(twin, seed), 0
    if split == "scaffold":
        return scaffold_split(scaffold_groups(prepared)[rows], twin), 0
    part = prepared.tensors["splits"][int(split)][rows]
    if (part < 0).any():
        raise ConfigError(
            f"split: expected every molecule of {facts.name} in train, valid or test, but "
            f"{int((part < 0).sum())} are in none in split {split}. Use another split."
        )
    if prepared.is_stand_in:  # a few of its SMILES are not canonical, so go by the graph
        return published_split(part, twin.tolist())
    # Published molecules have the SMILES that RDKit writes: equal strings are equal molecules, and
    # stereoisomers stay where the benchmark has put them.
    return published_split(part, [smiles_at(prepared.tensors, row) for row in rows.tolist()])
