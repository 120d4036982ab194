"""The questions that HTTP and assistants share; every error has a name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from threading import Lock, Semaphore
from typing import Annotated, Any

from fastapi import Query

from nicegnn import __version__
from nicegnn.errors import NicegnnError
from nicegnn.page.answers import Case, Change, Comparison, Explained, Model, compare
from nicegnn.page.changes import changed_molecules
from nicegnn.pretrained import NAMES, Pretrained, card_of
from nicegnn.pretrained.admet import ADMET
from nicegnn.screening.explaining import explain_rows, graph_of
from nicegnn.screening.loading import file_and_label, load_words
from nicegnn.screening.reading import Record, read_inchi
from nicegnn.screening.settings import ModelConfig, RunConfig
from nicegnn.screening.tables import molecule_of

Smiles = Annotated[str, Query(description="A SMILES, and a name after a space if there is one.")]
ModelName = Annotated[str, Query(description="One of the listed models; empty for the first.")]
AtomNumber = Annotated[int, Query(description="Number of an atom in the SMILES, from 0.")]

MOST_ATOMS = 200  # of a molecule
AT_ONCE = 2  # threads that explain
REMEMBERED = 256  # latest answers in memory
#: Errors by name, each with its HTTP status.
ERRORS = {
    "bad_molecule": 422,
    "bad_request": 422,
    "unknown_model": 404,
    "unknown_page": 404,
    "too_large": 413,
    "wrong_host": 403,
    "missing_package": 501,
    "internal": 500,
}
_INSTRUCTIONS = (
    "Says what a graph neural network predicts for a molecule, and which bonds and atoms the "
    "prediction rests on. It explains the model, which may be wrong about chemistry. Report the "
    "verdict, its words and the notes beside every explanation."
)


class PageError(NicegnnError, ValueError):
    """What a visitor asked for cannot be done; ``name`` is one of `ERRORS`."""

    def __init__(self, message: str, name: str = "bad_molecule") -> None:
        super().__init__(message)
        self.name = name


class Shelf:
    """Models by name, first the named one, each loaded when it is asked for; safe for threads."""

    def __init__(self, config: ModelConfig) -> None:
        self.seed = config.seed
        self._configs = {name: ModelConfig(model=name) for name in NAMES}
        self.families: dict[str, str] = {}  # of models that are outputs of the same ones
        self._loaded: dict[str, Pretrained] = {}
        self._lock = Lock()
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
        self.cards = {**own, **{one: card_of(one) for one in NAMES if one not in own}}

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
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) != 1:
        raise PageError(f"`smiles` must be one line such as c1ccccc1O (got {len(lines)}).")
    smiles, *name = lines[0].split(maxsplit=1)
    return read_inchi(Record(1, name[0] if name else "", smiles, {}))


class Desk:
    """Answers questions about molecules; threads may share one."""

    def __init__(self, shelf: Shelf, most_atoms: int = MOST_ATOMS) -> None:
        self.shelf = shelf
        self._config = RunConfig(max_atoms=most_atoms).with_(model__seed=shelf.seed)
        self._seats = Semaphore(AT_ONCE)
        self._answer = lru_cache(REMEMBERED)(self._explained)

    def case(self, smiles: str, model: str = "") -> Case:
        """Returns the explanation of one molecule; an empty model is the first one."""
        return self._answer(smiles.strip(), model or self.shelf.first)

    def models(self) -> list[Model]:
        """The models that can be asked, the first choice first: what each predicts, how well."""
        models = []
        for name, card in self.shelf.cards.items():
            told = {"name": name, "about": card.in_words(), "question": card.question or card.name}
            told["family"] = self.shelf.families.get(name, "")
            models.append(Model(**card.to_dict() | told))
        return sorted(models, key=lambda model: model.name != self.shelf.first)

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
            text = f"`atom` must be from 0 to {mol.GetNumAtoms() - 1} (got {atom})."
            raise PageError(f"{text} Atoms are numbered as in the SMILES.", "bad_request")
        pairs = changed_molecules(mol, atom)
        records = [Record(n, what, changed, {}) for n, (what, changed) in enumerate(pairs)]
        changes = []
        for after in self._together(records, before.model):
            if after.row["reason"] is None:
                change = after.outputs[number] - before.outputs[number]
                told = dict(after.explained())
                changes.append(Change(what=after.row["id"], change=change, **told))
        return sorted(changes, key=lambda change: -abs(change.change))

    def _explained(self, smiles: str, model: str) -> Case:
        record = typed_record(smiles)
        graph_of(record, self.shelf[model].featurizer, self._config.max_atoms)  # says what is wrong
        (case,) = self._together([record], model)
        if case.row["reason"] is not None:
            raise PageError(case.row["reason"])
        return case

    def _together(self, records: list[Record], model: str) -> list[Case]:
        subject = self.shelf[model]
        with self._seats:
            rows = explain_rows(records, subject, self._config)
        return [Case(model, subject.card, row) for row in rows]


def make_tools(shelf: Shelf, most_atoms: int = MOST_ATOMS) -> Any:
    """Returns an `MCPServer`, tools for assistants; ``run("stdio")`` serves one of them."""
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    desk = Desk(shelf, most_atoms)
    server: Any = MCPServer(
        "nicegnn", version=__version__, instructions=_INSTRUCTIONS, log_level="WARNING"
    )

    @contextmanager
    def in_our_words() -> Iterator[None]:  # errors that say what to do; others are in the log
        try:
            yield
        except (NicegnnError, ImportError) as error:
            raise ToolError(str(error)) from error

    def explain(smiles: Smiles, model: ModelName = "") -> Explained:
        """What a model predicts for a molecule, and which bonds and atoms this rests on."""
        return desk.case(smiles, model).explained()

    tools: dict[str, Callable[..., Any]] = {"list_models": desk.models, "explain": explain}
    for name, work in (tools | {"compare": desk.compare, "changes": desk.changes}).items():
        server.add_tool(in_our_words()(work), name=name)
    return server
