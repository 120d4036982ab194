"""What visitors ask for: models by name and molecules, within limits; every error has a name."""

from __future__ import annotations

import re
import sys
import tempfile
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from threading import Lock
from zipfile import ZipFile, is_zipfile

from torch_geometric.data import Data

from nicegnn.config import Settings
from nicegnn.errors import NicegnnError
from nicegnn.pretrained import DEFAULT, NAMES, Pretrained, card_of
from nicegnn.pretrained.admet import ADMET
from nicegnn.pretrained.model_file import load_model
from nicegnn.screening.explaining import graph_of
from nicegnn.screening.loading import file_and_label, load_words
from nicegnn.screening.reading import InputError, Reader, Record, read_inchi
from nicegnn.screening.settings import ModelConfig

_PACKED = 20  # how much larger a spreadsheet may be than its file
#: Endings of files that visitors may send.
KINDS = (".csv", ".tsv", ".smi", ".txt", ".sdf", ".mol", ".xlsx")
#: Errors by name, each with its HTTP status.
ERRORS = {
    "bad_molecule": 422,
    "bad_file": 422,
    "bad_request": 422,
    "unknown_model": 404,
    "unknown_page": 404,
    "too_large": 413,
    "too_many_requests": 429,
    "too_slow": 503,
    "wrong_host": 403,
    "missing_package": 501,
    "internal": 500,
}


class PageError(NicegnnError, ValueError):
    """What a visitor asked for cannot be done; ``name`` is one of `ERRORS`."""

    def __init__(self, message: str, name: str = "bad_molecule") -> None:
        super().__init__(message)
        self.name = name


@dataclass(frozen=True)
class Limits(Settings):
    """How much visitors may ask for."""

    megabytes: int = 5  # size of a file
    molecules: int = 500  # of a file; later ones are left out
    atoms: int = 200  # of one molecule
    seconds: int = 120  # for an answer, or for all molecules of a file
    per_minute: int = 1200  # requests of one address


class Shelf:
    """Models by name, each loaded when it is first asked for; threads may share a shelf.

    Args:
        config: a model that was named on the command line, which comes first.
        seed: of everything random.
    """

    def __init__(self, config: ModelConfig | None = None, seed: int = 0) -> None:
        self.seed, self.first = seed, DEFAULT
        self.cards = {name: card_of(name) for name in NAMES}
        self._configs = {name: ModelConfig(model=name) for name in NAMES}
        self.families: dict[str, str] = {}  # of models that are outputs of the same ones
        self._loaded: dict[str, Pretrained] = {}
        self._lock = Lock()
        if config is not None:
            self._add(config)

    def _add(self, config: ModelConfig) -> None:
        """Adds a model before the others; of a file with several labels, each of them."""
        subject = load_words(config)
        file, label = file_and_label(config.model)
        is_file = Path(file).suffix == ".safetensors" and Path(file).is_file()
        own = dict(load_model(file).labels) if is_file else {}
        configs = {name: config.with_(model=f"{file}:{name}") for name in own}
        if len(subject.cards) > 1:  # endpoints of ADMET-AI
            own = {card.name: card for card in subject.cards}
            configs = {name: config.with_(model=f"{ADMET}{name}") for name in own}
            subject = load_words(configs[subject.cards[0].name])
        self.families = dict.fromkeys(own, config.model)
        if not own:
            name = subject.card.name
            name = Path(file).name if name in NAMES and config.model not in NAMES else name
            own, configs = {name: subject.card}, {name: config}
        self.cards = own | {name: card for name, card in self.cards.items() if name not in own}
        self._configs = self._configs | configs
        self.first = label or next(iter(own))
        self._loaded[self.first] = subject

    def __getitem__(self, name: str) -> Pretrained:
        if name not in self.cards:
            names = ", ".join(self.cards)
            raise PageError(f"`model` must be one of {names} (got {name!r}).", "unknown_model")
        with self._lock:
            if name not in self._loaded:
                self._loaded[name] = load_words(self._configs[name])
            return self._loaded[name]


def typed_record(text: str) -> Record:
    """Returns the record of a typed line: a SMILES, and a name after it if there is one.

    >>> typed_record(" CCO  alcohol ").id
    'alcohol'
    """
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    if len(lines) != 1:
        raise PageError(f"`smiles` must be one line such as c1ccccc1O (got {len(lines)}).")
    smiles, *name = lines[0].split(maxsplit=1)
    return read_inchi(Record(1, name[0] if name else "", smiles, {}))


def graph_within(record: Record, subject: Pretrained, limits: Limits) -> Data:
    """Returns the graph of a record, or raises `PageError`: unreadable or too large."""
    graph = graph_of(record, subject.featurizer, max_atoms=sys.maxsize)
    if isinstance(graph, str):
        raise PageError(graph)
    if graph.num_nodes > limits.atoms:
        raise PageError(
            f"A molecule must have at most {limits.atoms} atoms (got {graph.num_nodes}). Use "
            "`nicegnn explain` for large molecules.",
            "too_large",
        )
    return graph


def sent_records(name: str, content: bytes, column: str, limits: Limits) -> list[Record]:
    """Returns the molecules of a file that a visitor sent, with all their own columns.

    The last record says so if there are more of them than the limit.
    """
    name = Path(name.replace("\\", "/")).name[-100:] or "molecules.smi"
    if not name.lower().endswith(KINDS):
        raise PageError(f"The file must end in {', '.join(KINDS)} (got {name!r}).", "bad_file")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / re.sub(r"[^\w.-]", "_", name)
        path.write_bytes(content)
        if is_zipfile(path):
            with ZipFile(path) as packed:
                size = sum(part.file_size for part in packed.infolist())
            if size > _PACKED * len(content) + 2**20:
                raise PageError(f"{name} is larger than it looks. Save it as CSV.", "too_large")
        try:
            records = list(islice(Reader(path, smiles_column=column), limits.molecules + 1))
        except InputError as error:  # in the words of the page, not of the command
            text = str(error).replace(str(path), name)
            text = text.replace("Name it with --smiles-column", "Name it as the column of SMILES")
            raise PageError(text, "bad_file") from error
    if not records:
        raise PageError(f"{name} must hold at least one molecule (got none).", "bad_file")
    if len(records) > limits.molecules:
        reason = f"Only the first {limits.molecules} molecules of a file are explained here."
        records[-1] = replace(records[-1], problem=f"{reason} Use `nicegnn explain` for all.")
    return records
