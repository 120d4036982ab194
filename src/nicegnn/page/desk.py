"""The questions that HTTP and assistants share, within limits; every error has a name.

They are answered by two threads, equal ones once, with the latest answers in memory.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooSlow
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Annotated, TypeVar
from zipfile import ZipFile, is_zipfile

from fastapi import Query

from nicegnn.config import Settings
from nicegnn.errors import NicegnnError
from nicegnn.page.answers import Case, Change, Comparison, Model, compare
from nicegnn.page.changes import changed_molecules
from nicegnn.pretrained import DEFAULT, NAMES, Pretrained, card_of
from nicegnn.pretrained.admet import ADMET
from nicegnn.screening.explaining import explain_rows, graph_of
from nicegnn.screening.loading import file_and_label, load_words
from nicegnn.screening.reading import InputError, Reader, Record, read_inchi
from nicegnn.screening.settings import ModelConfig, RunConfig
from nicegnn.screening.tables import molecule_of

T = TypeVar("T")
Smiles = Annotated[str, Query(description="A SMILES, and a name after a space if there is one.")]
ModelName = Annotated[str, Query(description="One of the listed models; empty for the first.")]
AtomNumber = Annotated[int, Query(description="Number of an atom in the SMILES, from 0.")]

AT_ONCE = 2  # threads that explain
REMEMBERED = 256  # latest answers in memory
_TOGETHER = 16  # molecules of a file that are explained in one batch
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
    """

    def __init__(self, config: ModelConfig | None = None) -> None:
        self.seed, self.first = (config or ModelConfig()).seed, DEFAULT
        self.cards = {name: card_of(name) for name in NAMES}
        self._configs = {name: ModelConfig(model=name) for name in NAMES}
        self.families: dict[str, str] = {}  # of models that are outputs of the same ones
        self._loaded: dict[str, Pretrained] = {}
        self._lock = Lock()
        if config is None:
            return
        subject, (file, label) = load_words(config), file_and_label(config.model)
        name = subject.card.name
        name = Path(file).name if name in NAMES and config.model not in NAMES else name
        own = subject.cards or {name: subject.card}
        if subject.cards:  # labels of a file, or endpoints of ADMET-AI
            source = ADMET if config.model.startswith(ADMET) else f"{file}:"
            self._configs |= {one: config.with_(model=f"{source}{one}") for one in own}
            self.families = dict.fromkeys(own, config.model)
        else:
            self._configs[name], self._loaded[name] = config, subject
        self.first = label or next(iter(own))
        self.cards = {**own, **{one: self.cards[one] for one in NAMES if one not in own}}

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


class Desk:
    """Answers questions about molecules; threads may share one."""

    def __init__(self, shelf: Shelf, limits: Limits) -> None:
        self.shelf, self.limits = shelf, limits
        self._config = RunConfig(max_atoms=limits.atoms).with_(model__seed=shelf.seed)
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="explain")
        self._lock = Lock()
        self._cases: OrderedDict[tuple[str, str], Future[Case]] = OrderedDict()

    def case(self, smiles: str, model: str = "") -> Case:
        """Returns the explanation of one molecule; an empty model is the first one."""
        record, model = typed_record(smiles), model or self.shelf.first
        key = model, smiles.strip()
        with self._lock:
            if key not in self._cases:
                self._cases[key] = self._pool.submit(self._explained, record, model)
            self._cases.move_to_end(key)
            while len(self._cases) > REMEMBERED:
                self._cases.popitem(last=False)
            future = self._cases[key]
        return self._wait(future)

    def models(self) -> list[Model]:
        """The models that can be asked, the first choice first: what each predicts, how well."""
        cards = sorted(self.shelf.cards.items(), key=lambda one: one[0] != self.shelf.first)
        families = self.shelf.families
        return [Model.of(name, card, families.get(name, "")) for name, card in cards]

    def compare(
        self, smiles: Smiles, smiles2: Smiles, model: ModelName = "", model2: ModelName = ""
    ) -> Comparison:
        """Two molecules or two models side by side; an empty second model is the first one."""
        return compare(self.case(smiles, model), self.case(smiles2, model2 or model))

    def changes(self, smiles: Smiles, atom: AtomNumber, model: ModelName = "") -> list[Change]:
        """What is predicted if one atom is another, the largest changes first."""
        before = self.case(smiles, model)
        mol, number = molecule_of(before.row), before.predicted
        if not 0 <= atom < mol.GetNumAtoms():
            raise PageError(
                f"`atom` must be from 0 to {mol.GetNumAtoms() - 1} (got {atom}). Atoms are "
                "numbered as in the SMILES.",
                "bad_request",
            )
        pairs = changed_molecules(mol, atom)
        records = [Record(n, what, changed, {}) for n, (what, changed) in enumerate(pairs)]
        found = self._wait(self._pool.submit(self._together, records, before.model))
        changes = [
            Change(
                what=after.record.id,
                change=after.outputs[number] - before.outputs[number],
                **dict(after.explained()),
            )
            for after in found
            if after.row["reason"] is None
        ]
        return sorted(changes, key=lambda change: -abs(change.change))

    def table(self, records: Sequence[Record], model: str) -> Iterator[Case]:
        """Yields each molecule of a file; one without an answer has a reason."""
        model, ends = model or self.shelf.first, time.monotonic() + self.limits.seconds
        late = f"The time of {self.limits.seconds} s was over. Use `nicegnn explain`."
        for first in range(0, len(records), _TOGETHER):
            group = records[first : first + _TOGETHER]
            if time.monotonic() > ends:
                group = [replace(record, problem=late) for record in group]
            yield from self._wait(self._pool.submit(self._together, group, model))

    def _wait(self, future: Future[T]) -> T:
        """Returns a result, or raises `PageError` when it takes too long."""
        try:
            return future.result(self.limits.seconds)
        except TooSlow as error:
            raise PageError(
                f"An answer must take at most {self.limits.seconds} s (this took longer). Ask "
                "again, or for a smaller molecule.",
                "too_slow",
            ) from error

    def _explained(self, record: Record, model: str) -> Case:
        graph_of(record, self.shelf[model].featurizer, self.limits.atoms)  # raises what is wrong
        (case,) = self._together([record], model)
        if case.row["reason"] is not None:
            raise PageError(case.row["reason"])
        return case

    def _together(self, records: Sequence[Record], model: str) -> list[Case]:
        """Returns the cases of some records in their order."""
        subject = self.shelf[model]
        rows = explain_rows(records, subject, self._config)
        pairs = zip(records, rows, strict=True)
        return [Case(record, model, subject.card, row) for record, row in pairs]
