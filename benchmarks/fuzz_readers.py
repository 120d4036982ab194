"""A second fuzzer, apart from `fuzz.py`: atheris follows the branches that each input reaches.

    pip install atheris
    python benchmarks/fuzz_readers.py smiles -max_total_time=600 corpus/smiles
    python benchmarks/fuzz_readers.py files -max_total_time=600 corpus/files
    python benchmarks/fuzz_readers.py models -max_total_time=600 corpus/models

What comes after the name goes to libFuzzer. An input must be read, or refused by a `NicegnnError`
of one line that names the file; anything else ends the run, and libFuzzer keeps the input. What it
has found is in ``tests/reliability/test_found.py``.
"""

from __future__ import annotations

import gzip
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

FOLDER = Path(tempfile.mkdtemp())
ENDINGS = ("csv", "tsv", "smi", "txt", "sdf", "mol", "xlsx", "parquet", "csv.gz", "sdf.gz")
SIGNS = "CNOSPFIBclnos[]()=#+-@/\\.%0123456789*:$~H<> {}|^&,;!?"


class WrongError(Exception):
    """Something was read that cannot be."""


def check(is_right: object, words: str) -> None:
    if not is_right:
        raise WrongError(words)


def try_smiles(data: bytes) -> bool:
    """Makes a graph of any text; returns whether it could be."""
    from nicegnn.errors import NicegnnError
    from nicegnn.molecule.featurizers import FEATURIZERS
    from nicegnn.molecule.smiles import matched_molecule
    from nicegnn.screening.reading import TypedSmiles

    names, kind = [*FEATURIZERS], data[0] if data else 0
    if kind & 128:  # any text, or one of signs that a SMILES may have
        text = data[1:].decode("utf-8", "surrogateescape")
    else:
        text = "".join(SIGNS[byte % len(SIGNS)] for byte in data[1:])
    try:
        (record,) = TypedSmiles([text])
        if record.problem:
            return False
        graph = FEATURIZERS[names[kind % len(names)]](record.smiles)
    except NicegnnError as error:
        check(str(error), "an error without words")
        return False
    check(graph.num_nodes >= 1 and graph.x.size(0) == graph.num_nodes, "atoms without features")
    check(bool(graph.x.isfinite().all()), "features are not finite")
    check(
        graph.edge_index.numel() == 0 or graph.edge_index.max() < graph.num_nodes, "a bond leaves"
    )
    once = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    mol = matched_molecule(record.smiles, once, graph.num_nodes)
    check(mol.GetNumBonds() * 2 == graph.num_edges, "bonds were lost")
    return True


def try_files(data: bytes) -> bool:
    """Reads a file of any kind; its first byte says which."""
    from nicegnn.errors import NicegnnError
    from nicegnn.screening.reading import Reader

    ending = ENDINGS[(data[0] if data else 0) % len(ENDINGS)]
    is_packed = ending.endswith(".gz") and (data[0] if data else 0) < 200  # else it is damaged
    path = FOLDER / f"input.{ending}"
    path.write_bytes(gzip.compress(data[1:], 1) if is_packed else data[1:])
    try:
        reader = Reader(path)
        records = list(reader)
        check(reader.count() == len(records), "two readings differ")
        check([r.row for r in records] == [*range(1, len(records) + 1)], "rows are no numbers")
        check(all(r.smiles or r.problem for r in records), "neither a SMILES nor a problem")
        check(all(r.id and {*r.values} <= {*reader.values} for r in records), "unknown columns")
        chunks = [record for chunk in reader.chunks(2) for record in chunk]
        check(chunks == records, "chunks differ")
    except NicegnnError as error:
        check(path.name in str(error), f"the file is not named: {error}")
        check("\0" not in str(error), "zeros in a message")
        return False
    return True


def try_models(data: bytes) -> bool:
    """Loads a model whose file was changed at places that the input names."""
    from nicegnn.errors import NicegnnError
    from nicegnn.pretrained import load_file

    whole = bytearray(whole_model())
    size = int.from_bytes(whole[:8], "little") + 8  # most of what is read is in the header
    for place in range(0, len(data) - 3, 4):
        where, value = int.from_bytes(data[place : place + 3], "little"), data[place + 3]
        whole[where % (size if where & 1 else len(whole))] = value
    path = FOLDER / "input.safetensors"
    path.write_bytes(whole[: -len(data)] if len(data) % 4 == 3 else whole)
    try:
        subject = load_file(path)
        subject.explainer.explain(subject.featurizer("CCO"))
    except NicegnnError as error:
        check(path.name in str(error), f"the file is not named: {error}")
        check("\n" not in str(error), f"more than one line: {error}")
        return False
    return True


@cache
def whole_model() -> bytes:
    """Returns the file of a model without its checksum, which would refuse every change."""
    from importlib.resources import files

    path = files("nicegnn.pretrained") / "models" / "benzene.safetensors"
    return path.read_bytes().replace(b'"sha256"', b'"sha257"', 1)


TRIES: dict[str, Callable[[bytes], bool]] = {
    "smiles": try_smiles,
    "files": try_files,
    "models": try_models,
}


def main() -> None:
    import atheris

    name, *options = sys.argv[1:] or ["-h"]
    if name not in TRIES:
        sys.exit(__doc__)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    with atheris.instrument_imports(include=["nicegnn"]):
        TRIES[name](b"")
    counts = {True: 0, False: 0}

    def run(data: bytes) -> None:
        counts[TRIES[name](data)] += 1
        if sum(counts.values()) % 1000 == 0:
            print(f"{counts[True]} read, {counts[False]} refused", file=sys.stderr, flush=True)

    for one in options:
        if not one.startswith("-"):
            Path(one).mkdir(parents=True, exist_ok=True)
    atheris.Setup([sys.argv[0], *options], run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
