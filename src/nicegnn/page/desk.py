"""Where answers are made: by two threads, equal questions once, the latest answers in memory."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooSlow
from functools import partial
from threading import Lock
from typing import Any, TypeVar

from torch_geometric.data import Data

from nicegnn.errors import NicegnnError
from nicegnn.page.answers import Case, Change, Row, make_case
from nicegnn.page.asking import (
    Limits,
    PageError,
    Shelf,
    graph_within,
    typed_record,
)
from nicegnn.page.changes import changed_molecules
from nicegnn.pretrained import Pretrained
from nicegnn.screening.reading import Record
from nicegnn.screening.shards import csv_text

T = TypeVar("T")

AT_ONCE = 2  # threads that explain
WAITING = 1000  # questions that may wait for them
REMEMBERED = 256  # latest answers in memory
_TOGETHER = 16  # molecules of a file that are explained in one batch


class Desk:
    """Answers questions about molecules; threads may share one."""

    def __init__(self, shelf: Shelf, limits: Limits) -> None:
        self.shelf, self.limits = shelf, limits
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="explain")
        self._lock = Lock()
        self._cases: OrderedDict[tuple[str, str], Future[Case]] = OrderedDict()
        self._waiting = 0

    def ask(self, smiles: str, model: str = "") -> Future[Case]:
        """Returns the explanation to come of one molecule; an empty model is the first one."""
        model = model or self.shelf.first
        record = typed_record(smiles)
        key = model, smiles.strip()
        with self._lock:
            if key in self._cases:
                self._cases.move_to_end(key)
                return self._cases[key]
        future = self.submit(partial(self._explained, record, model))
        with self._lock:
            self._cases[key] = future
            while len(self._cases) > REMEMBERED:
                self._cases.popitem(last=False)
        return future

    def case(self, smiles: str, model: str = "") -> Case:
        """Returns the explanation of one molecule, and waits for it."""
        return self.wait(self.ask(smiles, model))

    def changes(self, smiles: str, model: str, atom: int) -> list[Change]:
        """Returns what is predicted if one atom is another, the largest changes first."""
        before = self.case(smiles, model)
        subject = self.shelf[before.model]
        pairs = changed_molecules(before.mol, atom)
        records = [Record(n, what, changed, {}) for n, (what, changed) in enumerate(pairs)]
        cases = self.wait(self.submit(partial(self._together, records, before.model, subject)))
        predicted = int(before.out.prediction[0].argmax())
        answers = []
        for case in cases:
            if isinstance(case, Case):
                said, probability, value = case.prediction()
                answers.append(
                    Change(
                        what=case.record.id,
                        smiles=case.record.smiles,
                        prediction=said,
                        probability=probability,
                        value=value,
                        change=case.of_class(predicted) - before.of_class(predicted),
                    )
                )
        return sorted(answers, key=lambda change: -abs(change.change))

    def table(self, records: Sequence[Record], model: str) -> Iterator[Case | Row]:
        """Yields each molecule of a file, or a row that says why it has no answer."""
        model, ends = model or self.shelf.first, time.monotonic() + self.limits.seconds
        subject = self.shelf[model]
        for first in range(0, len(records), _TOGETHER):
            group = records[first : first + _TOGETHER]
            if time.monotonic() > ends:
                reason = f"The time of {self.limits.seconds} s was over. Use `nicegnn explain`."
                yield from (_refused(record, reason) for record in group)
                continue
            yield from self.wait(self.submit(partial(self._together, group, model, subject)))

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Hands work to the threads; raises `PageError` if too much of it waits."""
        with self._lock:
            if self._waiting >= WAITING:
                raise PageError(
                    f"At most {WAITING} questions may wait (got one more). Ask again later.", "busy"
                )
            self._waiting += 1
        future = self._pool.submit(work)
        future.add_done_callback(self._count_down)
        return future

    def wait(self, future: Future[T]) -> T:
        """Returns a result, or raises `PageError` when it takes too long."""
        try:
            return future.result(self.limits.seconds)
        except TooSlow as error:
            raise PageError(
                f"An answer must take at most {self.limits.seconds} s (this took longer). Ask "
                "again, or for a smaller molecule.",
                "too_slow",
            ) from error

    def close(self) -> None:
        """Ends the threads; what waits is dropped."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _count_down(self, _: Future[Any]) -> None:
        with self._lock:
            self._waiting -= 1

    def _explained(self, record: Record, model: str) -> Case:
        subject = self.shelf[model]
        graph = graph_within(record, subject, self.limits)
        out = subject.explainer.explain(graph, seed=self.shelf.seed)
        return make_case(record, model, subject, out)

    def _together(
        self, records: Sequence[Record], model: str, subject: Pretrained
    ) -> list[Case | Row]:
        """Returns the cases of some records in their order; if a batch fails, one by one."""
        cases: dict[int, Case | Row] = {}
        graphs: dict[int, Data] = {}
        for place, record in enumerate(records):
            try:
                graphs[place] = graph_within(record, subject, self.limits)
            except NicegnnError as error:
                cases[place] = _refused(record, str(error))
        try:
            outs = (
                subject.explainer.explain([*graphs.values()], seed=self.shelf.seed).split()
                if graphs
                else []
            )
            for place, out in zip(graphs, outs, strict=True):
                cases[place] = make_case(records[place], model, subject, out)
        except (NicegnnError, RuntimeError) as error:
            if len(records) > 1:
                return [case for one in records for case in self._together([one], model, subject)]
            return [_refused(records[0], f"{type(error).__name__}: {error}")]
        return [cases[place] for place in range(len(records))]


def _refused(record: Record, reason: str) -> Row:
    return Row(
        row=record.row,
        id=record.id,
        smiles=record.smiles,
        values=dict(record.values),
        error=reason,
    )


def to_csv(case: Case, kind: str) -> str:
    """Returns the bonds or atoms of a molecule as CSV."""
    answer = case.explained()
    about = {"smiles": answer.smiles, "model": answer.model, "prediction": answer.prediction}
    rows = [about | one.model_dump() for one in (answer.bonds if kind == "bonds" else answer.atoms)]
    table = {name: [row[name] for row in rows] for name in (rows[0] if rows else about)}
    return csv_text(table, dict.fromkeys(table, str))
