"""Where tables and figures come from: folders of rows, their versions and hashes, a manifest."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import pandas as pd

from nicegnn import __version__
from nicegnn.errors import StoreError
from nicegnn.store import write_json
from nicegnn_lab.bench.rows import Folder, finished_cells, read_rows
from nicegnn_lab.rivals import EXPLAINERS
from nicegnn_lab.studies import STUDIES, make_study

MANIFEST = "manifest.json"
Made = TypeVar("Made")


@dataclass(frozen=True)
class Sources:
    rows: Path = Path("results/bench")  # folder of the benchmark (`nicegnn lab bench`)
    studies: Path = Path("results/studies")  # folder of all studies (`nicegnn lab experiment`)

    def bench(self, metrics: Sequence[str] = ()) -> pd.DataFrame:
        """Returns the rows of the benchmark, of some metrics or of all."""
        rows = read_rows(self.rows, {"metric": metrics} if metrics else None)
        if len(rows) == 0:
            what = f" of {', '.join(metrics)}" if metrics else ""
            raise StoreError(
                f"There are no rows{what} in {self.rows}; compute them with `nicegnn lab bench "
                f"--out {self.rows}`."
            )
        return rows

    def folder(self, name: str) -> Path:
        return self.rows if name == "bench" else self.studies / name

    def older(self, names: Iterable[str]) -> list[str]:
        """Returns a note on rows that an older version measured, if there are any."""
        older = [pair for name in names for pair in older_rows(self.folder(name)).items()]
        outdated = ", ".join(
            f"{what} ({', '.join(map(str, sorted(then)))}; now {version_of(what)})"
            for what, then in sorted(older)
        )
        return [f"Measured by an older version: {outdated}."] if outdated else []

    def digests(self, names: Iterable[str]) -> dict[str, str]:
        """Returns a hash of each source: ``bench``, or the name of a study."""
        return {name: digest(self.folder(name)) for name in names}


def older_rows(folder: Path) -> dict[str, set[int]]:
    """Returns the versions of rows that are not of today, by explainer or name of a study."""
    versions_of: dict[str, set[int]] = {}
    for cell in finished_cells(folder).values():
        identity = cell.description["identity"]
        scores = identity["scores"]
        for name, then in (
            (scores.get("explainer", ""), scores.get("defaults", 1)),
            (identity["study"], identity.get("version", 1)),
        ):
            if then != version_of(name, then):
                versions_of.setdefault(name, set()).add(then)
    return versions_of


def version_of(name: str, otherwise: int = 1) -> int:
    """Returns the version of an explainer's defaults, or that of a study."""
    if name in EXPLAINERS:
        return EXPLAINERS[name].defaults_version
    return make_study(name).version if name in STUDIES else otherwise


def digest(source: Path) -> str:
    """Returns a short hash of all rows in a folder.

    Of a single packed file it begins what ``sha256sum`` prints. Files of single cells count too, by
    their names and contents.
    """
    found = hashlib.sha256()
    for file in sorted(Folder(source).row_files()):
        name = file.name.encode() if file.parent.name == "rows" else b""
        found.update(name + file.read_bytes())
    return found.hexdigest()[:24]


def record(files: Sequence[Path], artefact: str, command: str, sources: Mapping[str, str]) -> None:
    """Writes what files of one folder were made from into its manifest, beside what is there.

    Entries of files that are gone are dropped, and a manifest that cannot be read is begun anew.
    """
    if not files:
        return
    path = files[0].parent / MANIFEST
    about: dict[str, Any] = {"artefact": artefact, "command": command}
    about |= {"sources": dict(sources), "nicegnn": __version__}
    try:
        old = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        old = {}
    manifest = (old if isinstance(old, dict) else {}) | {file.name: about for file in files}
    write_json(path, {n: manifest[n] for n in sorted(manifest) if (path.parent / n).is_file()})


@dataclass(frozen=True)
class Artefact(Generic[Made]):
    """A table or a figure."""

    make: Callable[[Sources], Made]  # builds it from rows
    reads: tuple[str, ...] = ("bench",)  # ``bench``, or names of studies
