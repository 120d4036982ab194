"""Seeded fuzzing of the Python API, of files and of command lines.

    python benchmarks/fuzz.py --cases 10000 --seed 0 --out results/speed/fuzz.json
    python benchmarks/fuzz.py --seed 0 --only 4711        # one case again, with its traceback

Each case is drawn from the seed and its own number alone. It ends "fine"; "named", with a
`NicegnnError` or a command that tells the reason; "raw", with any other error; or "wrong": numbers
that cannot be, something that was changed, or a good call that was refused. The command fails if a
case is raw or wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import random
import resource
import shutil
import sys
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from fuzz_material import (
    FAULTS,
    JUNK,
    QUICK,
    SMILES,
    World,
    Wrong,
    check,
    check_numbers,
    close,
    command,
    dump,
    graph,
    molecule,
    quiet_world,
    settings,
    some_graphs,
    spoil_parts,
    spoiled_bytes,
    text_of,
)
from torch_geometric.data import Data

from nicegnn import NICE, NICEConfig, get_explainer
from nicegnn.errors import NicegnnError
from nicegnn.molecule.featurizers import FEATURIZERS
from nicegnn.pretrained import load_file
from nicegnn.screening.tables import read_table
from nicegnn.store import save_tensors, write_json


def any_call(rng: random.Random, world: World) -> None:
    """Explains graphs of any kind; some calls are good, and must not be refused."""
    if rng.random() < 0.3:
        name = rng.choice(["gin", "gcn", "sage", "gat", "gine", "transformer", "value", "binary"])
        given = rng.choice([graph(rng), [graph(rng) for _ in range(3)]])
        usual: list[dict[str, Any]] = [{}, {"target": 0}, {"atoms": False}]
        try:
            ask(rng, world, name, given, rng.choice(usual))
        except NicegnnError as error:
            raise Wrong(f"a good call is refused: {error}") from error
        return
    name, given = rng.choice([*world.models]), some_graphs(rng)
    words: dict[str, Any] = {}
    if name in FAULTS and rng.random() < 0.5:
        name = "gin"
    names = ("target", "index", "seed", "progress", "atoms", "student")
    for key in rng.sample(names, rng.choice([0, 0, 0, 1, 1, 2])):
        fit = {"target": [0, 1], "seed": [3], "index": [0]}.get(key, [True, False])
        words[key] = rng.choice(JUNK if rng.random() < 0.6 else fit)
    if name == "node" and rng.random() < 0.8:
        words["index"] = rng.choice([0, [0, 1], torch.tensor([0]), torch.tensor([True]), -1, 50])
        given = given[0] if isinstance(given, list) and given else given
    if name in ("values", "labels") and rng.random() < 0.7:
        words.setdefault("target", rng.choice([0, 1]))
    ask(rng, world, name, given, words)


def ask(rng: random.Random, world: World, name: str, given: Any, words: dict[str, Any]) -> None:
    """Explains twice, and looks at numbers, model, graphs and random state."""
    model, reading = world.models[name]
    held = [
        one for one in (given, *(given if isinstance(given, list) else ())) if isinstance(one, Data)
    ]
    kept = [text_of(one) for one in held]
    chance = torch.get_rng_state(), random.getstate()
    nice = world.known.get(name) if rng.random() < 0.4 else None
    try:
        if nice is None:
            background = rng.choice([None, world.background])
            nice = NICE(model, settings(rng), background=background, **reading)
        out = nice.explain(given, **words)
        check_numbers(out)
        if isinstance(given, Data | list):
            close(out, nice.explain(given, **words), "the same call again")
    finally:
        check(dump(model) == world.states[name], "the model was changed")
        check(torch.equal(chance[0], torch.get_rng_state()), "the random state was changed")
        check(chance[1] == random.getstate(), "the random state of Python was changed")
        check(kept == [text_of(one) for one in held], "a graph was changed")


def same_molecules(rng: random.Random, world: World) -> None:
    """Like bonds have one score, alone as in a batch, by an old object as by a new one."""
    from rdkit import Chem

    name = rng.choice(["gin", "gcn", "sage", "value", "binary"])
    model, words = world.models[name]
    config = settings(rng) if rng.random() < 0.3 else NICEConfig()
    made = [NICE(model, config, background=world.background, **words) for _ in range(2)]
    chosen = rng.sample(SMILES, 4)
    graphs = [FEATURIZERS["elements"](smiles) for smiles in chosen]
    whole = made[0].explain(graphs, seed=1)
    for smiles, one, part in zip(chosen, graphs, whole.split(), strict=True):
        alone = made[rng.randint(0, 1)].explain(one, seed=1)
        check_numbers(alone)
        close(alone, part, f"{smiles} alone and in a batch")
        if config.mechanism != "exchange":
            continue  # noise is drawn for each edge
        ranks = [*Chem.CanonicalRankAtoms(Chem.MolFromSmiles(smiles), breakTies=False)]
        alike = defaultdict(list)
        for u, v, score in zip(*alone.bond_index.tolist(), alone.bond_score.tolist(), strict=True):
            ends = ranks[u], ranks[v]
            alike[tuple(sorted(ends)) if config.undirected else ends].append(score)
        for scores in alike.values():
            low, high = min(scores), max(scores)
            check(high - low < 1e-3 * max(1, abs(high)), f"{smiles}: like bonds have {scores}")


def any_result(rng: random.Random, world: World) -> None:
    """Asks an explanation anything."""
    name = rng.choice([*world.known])
    out = world.known[name].explain([graph(rng) for _ in range(rng.randint(1, 3))], target=0)
    number = rng.choice([0.5, 1.0, 1, 2, rng.choice(JUNK)])
    kind = rng.choice(["bonds", "atoms", "graphs", rng.choice(JUNK)])
    drawn = {rng.choice(["value", "top", "truth", "size", "columns", "most", "palette"])}
    drawn |= {"title"}
    look = {key: rng.choice(JUNK) for key in drawn if rng.random() < 0.7}
    asks: list[Callable[[], Any]] = [
        lambda: out.top(number),
        lambda: out.to_frame(kind),
        lambda: out.summary(number),
        lambda: out.draw(**look).svg,
        lambda: out.to(rng.choice(["cpu", rng.choice(JUNK)])),
        lambda: out.first(number),
        lambda: (repr(out), out.to_dense(), out._repr_mimebundle_(), str(out.status)),
        lambda: close(out.split()[0], out.first(1), "the first graph"),
    ]
    rng.choice(asks)()


def any_explainer(rng: random.Random, world: World) -> None:
    """Makes explainers by name with any settings."""
    names = ["nice", "saliency", "occlusion", "integrated-gradients"]
    name = rng.choice([*names, "nice+nc", "occlusion+em", "nice+", rng.choice(JUNK)])
    keys = ["config", "mechanism", "background", "mode", "return_type", "inputs", "batched", "seed"]
    keys += ["batch_size", "steps", "chunk_edges", "nosuch", "boundary__steps"]
    words = {rng.choice(keys): rng.choice(JUNK) for _ in range(rng.choice([0, 0, 1]))}
    if isinstance(name, str) and name.startswith("gnn"):
        words.setdefault("steps", 2)
    model = rng.choice([world.models["gin"][0]] * 9 + [rng.choice(JUNK)])
    explainer = get_explainer(name, model, **words)
    given = graph(rng)
    out = explainer.explain(given)
    check(out.bond_score.isfinite().all(), "scores are not finite")
    close(out, explainer.explain(given), "the same call again")


def any_background(rng: random.Random, world: World) -> None:
    """Takes anything as a background, or to learn from."""
    model = world.models["gin"][0]
    if rng.random() < 0.7:
        check_numbers(NICE(model, background=some_graphs(rng)).explain(graph(rng)))
        return
    nice = NICE(model, NICEConfig.paper().with_(**QUICK))
    keys = ["target", "index", "seed"]
    words: dict[str, Any] = {rng.choice(keys): rng.choice(JUNK[:12])} if rng.random() < 0.4 else {}
    check_numbers(nice.fit(some_graphs(rng), progress=False, **words).explain(graph(rng)))


def any_file(rng: random.Random, world: World) -> None:
    """Reads model and explainer files that were spoiled, most of them with a right checksum."""
    name = rng.choice([*world.files])
    tensors, description = dict(world.files[name][0]), json.loads(json.dumps(world.files[name][1]))
    for _ in range(rng.choice([0, 1, 1, 1, 2])):
        spoil_parts(rng, tensors, description)
    path, model = world.folder / "spoiled.safetensors", world.models["gin"][0]
    save_tensors(path, tensors, description)
    if rng.random() < 0.2:
        path.write_bytes(spoiled_bytes(rng, path.read_bytes()))
    try:
        explainer: Any = load_file(path).explainer if name == "model" else NICE.load(path, model)
    except NicegnnError as error:
        check(path.name in str(error), f"the file is not named: {error}")
        check("\n" not in str(error), f"more than one line: {error}")
        raise
    words = {"student": True} if explainer.student is not None and rng.random() < 0.5 else {}
    check_numbers(explainer.explain(world.background, **words))


def any_folder(rng: random.Random, world: World) -> None:
    """Reads, or goes on with, a run folder that was spoiled."""
    run, copy = world.folder / "run", world.folder / "copy"
    explain = ["explain", str(world.folder / "few.csv"), "-q", "--out"]
    if not run.is_dir():
        command([*explain, str(run)])
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(run, copy)
    files = sorted(path for path in copy.rglob("*") if path.is_file())
    path = rng.choice([*files, copy / "run.json"])
    path.write_bytes(spoiled_bytes(rng, path.read_bytes()))
    command(["summary", str(copy)] if rng.random() < 0.8 else [*explain, str(copy)])


def any_smiles(rng: random.Random, world: World) -> None:
    """Makes a graph of any text."""
    featurizer = FEATURIZERS[rng.choice([*FEATURIZERS])]
    made = featurizer(molecule(rng) if rng.random() < 0.97 else rng.choice(JUNK))
    check(made.num_nodes >= 1, "no atoms")
    check(made.x.isfinite().all() and made.x.size(1) == featurizer("C").x.size(1), "features")
    there = {tuple(pair) for pair in made.edge_index.t().tolist()}
    check(there == {(v, u) for u, v in there}, "a bond has one direction")


def any_table(rng: random.Random, world: World) -> None:
    """Explains a file of molecules that may be anything."""
    end = rng.choice(["csv"] * 4 + ["tsv", "smi", "sdf", "mol", "parquet", "xlsx", "csv.gz", "txt"])
    rows = [f"{rng.choice(['a', '=1', '', 'é', '<b>'])},{molecule(rng)}" for _ in range(3)]
    text = rng.choice(["id,smiles\n", "", "name;smiles\n", "x,y\n", "smiles,smiles\n"])
    text += rng.choice(["\n", "\r\n", "\n\n"]).join(rows) + rng.choice(["", "\n", '\n"', "\0"])
    code = rng.choice(["utf-8", "utf-8", "utf-16", "latin-1", "utf-8-sig"])
    path = world.folder / f"any.{end}"
    path.write_bytes(text.encode(code, "replace"))
    out = world.folder / "tables"
    shutil.rmtree(out, ignore_errors=True)
    command(["explain", str(path), "-q", "--out", str(out)])
    if (out / "molecules.csv").is_file():
        lines = [read_table(shard) for shard in (out / "shards").glob("*.parquet")]
        tables = [out / "molecules.csv", out / "rejects.csv"]
        told = sum(len(list(csv.DictReader(table.open(newline="")))) for table in tables)
        check(told == sum(len(list(rows)) for rows in lines), "molecules were lost")


def any_command(rng: random.Random, world: World) -> None:
    """Types anything."""
    names = ("explain", "summary", "models", "explainers", "--version", "train", "x")
    options = ["--out", "--model", "--background", "--featurizer", "--task", "--classes"]
    options += ["--explainer", "--max-atoms", "--seed", "--device", "--nosuch", "-h"]
    options += ["--smiles-column", "--substructure", "--gallery", "--format", "--svg", "-q"]
    words = ["CCO", "C(", "", "-1", "0", "1e400", "é", "\udcff", "nosuch.csv", "cuda:99", ".", "--"]
    words += ["benzene", "x:y", "os:path", "a=b", "[#7]", "amide", "/proc/nosuch", molecule(rng)]
    typed = [rng.choice([*options, *words]) for _ in range(rng.randint(0, 5))]
    command([rng.choice(names), *(word.replace("\0", "") for word in typed)])


MOST_MEMORY = 12 * 2**30  # bytes of addresses; a case that takes more ends raw

KINDS: dict[Callable[[random.Random, World], None], int] = {
    any_call: 34,
    same_molecules: 6,
    any_result: 8,
    any_explainer: 10,
    any_background: 6,
    any_file: 14,
    any_folder: 3,
    any_smiles: 12,
    any_table: 3,
    any_command: 4,
}


def outcome(case: int, seed: int, world: World, *, loud: bool = False) -> tuple[str, str, str]:
    """Returns kind, outcome and words of one case."""
    rng = random.Random(f"{seed}.{case}")
    (kind,) = rng.choices([*KINDS], [*KINDS.values()])
    found = "fine", ""
    try:
        kind(rng, world)
    except Exception as error:
        if loud:
            traceback.print_exc(file=sys.stdout)
        if isinstance(error, NicegnnError | Wrong):
            return (
                kind.__name__,
                "named" if isinstance(error, NicegnnError) else "wrong",
                str(error),
            )
        places = [p for p in traceback.extract_tb(error.__traceback__) if "nicegnn" in p.filename]
        where = f"{Path(places[-1].filename).name}:{places[-1].lineno}" if places else ""
        found = "raw", f"{type(error).__name__}: {error!s:.200} ({where})"
    return kind.__name__, *found


def fuzz(cases: int, seed: int, out: Path | None = None) -> dict[str, Any]:
    """Returns how many cases of each kind ended how, and those that must not be.

    They are written to `out` from time to time, so that a run that is stopped tells what it did.
    """
    kinds: dict[str, Counter[str]] = {kind.__name__: Counter() for kind in KINDS}
    failures: list[dict[str, Any]] = []
    out = None if out is None else out.absolute()  # cases run in a folder of their own
    with quiet_world() as world:
        for case in range(cases):
            if out is not None and case and case % 250 == 0:
                write_json(out, _told(case, seed, kinds, failures))
            name, ending, words = outcome(case, seed, world)
            kinds[name][ending] += 1
            if ending in ("raw", "wrong"):
                failures.append({"case": case, "kind": name, "outcome": ending, "words": words})
    return _told(cases, seed, kinds, failures)


def _told(
    cases: int, seed: int, kinds: dict[str, Counter[str]], failures: list[dict[str, Any]]
) -> dict[str, Any]:
    endings = ("fine", "named", "raw", "wrong")
    total = {ending: sum(kind[ending] for kind in kinds.values()) for ending in endings}
    counts = {name: dict(kind) for name, kind in kinds.items()}
    return {"cases": cases, "seed": seed, **total, "kinds": counts, "failures": failures}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="number of one case, to see its traceback")
    parser.add_argument("--out", type=Path, help="JSON file for the outcome")
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    if given.only is not None:
        with quiet_world() as world, contextlib.redirect_stderr(sys.stdout):
            print(*outcome(given.only, given.seed, world, loud=True))
        return
    found = fuzz(given.cases, given.seed, given.out)
    print(json.dumps(found, indent=1))
    if given.out:
        write_json(given.out, found)
    sys.exit(bool(found["failures"]))


if __name__ == "__main__":
    main()
