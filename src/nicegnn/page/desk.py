"""The questions that HTTP and assistants share.

They are answered by two threads, equal ones once, with the latest answers in memory.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooSlow
from threading import Lock
from typing import Annotated, TypeVar

from fastapi import Query
from torch_geometric.data import Data

from nicegnn.errors import NicegnnError
from nicegnn.page.answers import (
    Case,
    Change,
    Comparison,
    Model,
    Row,
    compare,
    make_case,
)
from nicegnn.page.asking import Limits, PageError, Shelf, graph_within, typed_record
from nicegnn.page.changes import changed_molecules
from nicegnn.screening.reading import Record

T = TypeVar("T")
Smiles = Annotated[str, Query(description="A SMILES, and a name after a space if there is one.")]
ModelName = Annotated[str, Query(description="One of the listed models; empty for the first.")]
AtomNumber = Annotated[int, Query(description="Number of an atom in the SMILES, from 0.")]

AT_ONCE = 2  # threads that explain
REMEMBERED = 256  # latest answers in memory
_TOGETHER = 16  # molecules of a file that are explained in one batch


class Desk:
    """Answers questions about molecules; threads may share one."""

    def __init__(self, shelf: Shelf, limits: Limits) -> None:
        self.shelf, self.limits = shelf, limits
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
        pairs = changed_molecules(before.mol, atom)
        records = [Record(n, what, changed, {}) for n, (what, changed) in enumerate(pairs)]
        found = self._wait(self._pool.submit(self._together, records, before.model))
        changes = [
            Change(
                what=after.record.id,
                change=after.of_class(before.predicted) - before.of_class(before.predicted),
                **after.explained().model_dump(),
            )
            for after in found
            if isinstance(after, Case)
        ]
        return sorted(changes, key=lambda change: -abs(change.change))

    def table(self, records: Sequence[Record], model: str) -> Iterator[Case | Row]:
        """Yields each molecule of a file, or a row that says why it has no answer."""
        model, ends = model or self.shelf.first, time.monotonic() + self.limits.seconds
        for first in range(0, len(records), _TOGETHER):
            group = records[first : first + _TOGETHER]
            if time.monotonic() <= ends:
                yield from self._wait(self._pool.submit(self._together, group, model))
            else:
                reason = f"The time of {self.limits.seconds} s was over. Use `nicegnn explain`."
                yield from (Row(**vars(record), error=reason) for record in group)

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
        subject = self.shelf[model]
        graph = graph_within(record, subject, self.limits)
        out = subject.explainer.explain(graph, seed=self.shelf.seed)
        return make_case(record, model, subject, out)

    def _together(self, records: Sequence[Record], model: str) -> list[Case | Row]:
        """Returns the cases of some records in their order; if a batch fails, one by one."""
        subject, graphs = self.shelf[model], dict[int, Data]()
        cases: dict[int, Case | Row] = {}
        for place, record in enumerate(records):
            try:
                graphs[place] = graph_within(record, subject, self.limits)
            except NicegnnError as error:
                cases[place] = Row(**vars(record), error=str(error))
        if graphs:
            try:
                out = subject.explainer.explain([*graphs.values()], seed=self.shelf.seed)
            except (NicegnnError, RuntimeError) as error:
                if len(records) == 1:
                    return [Row(**vars(records[0]), error=str(error))]
                return [case for one in records for case in self._together([one], model)]
            for place, part in zip(graphs, out.split(), strict=True):
                cases[place] = make_case(records[place], model, subject, part)
        return [cases[place] for place in range(len(records))]
