"""The same graph gets the same explanation, however it is written and in whatever company."""

from __future__ import annotations

import csv
import gzip
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from nicegnn import NICE, pretrained
from nicegnn.explain.explanation import Explanation
from nicegnn.explain.words import summarise
from nicegnn.intervention import fused, neighbourhoods, one_part
from nicegnn.intervention.parts import in_copies
from nicegnn.student.teaching import TeachConfig
from nicegnn.target.zoo import MODELS, make_model
from tests.conftest import NUM_EDGE_FEATURES, NUM_FEATURES, random_graph
from tests.explain.small_models import NodeGCN

#: Molecules with equivalent bonds, or one bond alone; real ones are added where they lie.
SYMMETRIC = (
    *("ClCCl", "O=C=O", "COC", "CSC", "CC", "C#N", "CCO", "CC(C)C", "CC(C)(C)C", "FC(F)(F)F"),
    *("c1ccccc1", "C1CCCCC1", "C1CC2CCC1CC2", "c1ccc2ccccc2c1", "OCC(CO)(CO)CO", "C1CC1"),
    *("O=[N+]([O-])c1ccccc1", "Nc1ccc(cc1)-c1ccccc1", "c1ccc(cc1)N=Nc1ccccc1", "CN(C)N=O"),
    *("FC(F)(F)c1ccc(cc1)C(F)(F)F", "O=C(O)c1ccc(cc1)C(=O)O", "CN1C=NC2=C1C(=O)N(C)C(=O)N2C"),
)
SHIPPED = pretrained.NAMES  # classes and values
KINDS = ("background", "own graph", "student")
PATHS = ("kernel", "differences", "copies")


@pytest.fixture(params=PATHS)
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How damaged graphs are run: in a kernel, as differences, or as whole copies."""
    if request.param == "kernel":
        pytest.importorskip("numba")
    number = PATHS.index(request.param)
    monkeypatch.setattr(one_part, "PATHS", one_part.PATHS[number:])
    for module in (fused, neighbourhoods):
        monkeypatch.setattr(module, "WORTH", 0)
    return str(request.param)


@cache
def molecules(number: int) -> tuple[str, ...]:
    """Returns the symmetric molecules, and so many of ChEMBL where they lie."""
    pytest.importorskip("rdkit")
    place = Path(os.environ.get("NICEGNN_DATA", "")) / "chembl_pool.csv.gz"
    if not place.is_file():
        return SYMMETRIC
    with gzip.open(place, "rt", encoding="utf-8") as file:
        lines = [row["smiles"] for row in csv.DictReader(file) if int(row["n_atoms"]) <= 45]
    return (*SYMMETRIC, *lines[:: len(lines) // number][:number])


def explainer(name: str, kind: str) -> NICE:
    """Returns a new explainer of a shipped model, so that no memo of another path is left."""
    known = pretrained.load(name)
    mode = known.explainer.target.mode
    if kind == "own graph":
        return NICE(known.model, mode=mode)
    nice = NICE(known.model, background=known.background, mode=mode)
    if kind == "student":
        lesson = [*SYMMETRIC, *("C" * n + "O" * (n % 2) for n in range(2, 20))]
        nice.teach(lesson, config=TeachConfig(epochs=2), progress=False)
    return nice


def explained(nice: NICE, some: Any) -> list[Explanation]:
    return nice.explain(some, student=nice.student is not None).split()


def ranks(smiles: str, *, are_equal: bool) -> list[int]:
    """Returns a rank for each atom: equal for equivalent ones, or different for all."""
    from rdkit import Chem

    mol = Chem.MolFromSmiles(smiles)
    return list(Chem.CanonicalRankAtoms(mol, breakTies=not are_equal, includeChirality=False))


def table(out: Explanation, smiles: str) -> tuple[list[tuple[Any, float]], ...]:
    """Returns the scores of one molecule by ranks of its atoms, sorted."""
    rank = ranks(smiles, are_equal=True)
    ends = [tuple(sorted(rank[int(node)] for node in pair)) for pair in out.bond_index.t()]
    found = [zip(ends, out.bond_score.tolist(), strict=True)]
    if out.atom_score is not None:  # a student scores bonds alone
        found.append(zip(rank, out.atom_score.tolist(), strict=True))
    return tuple(sorted(one) for one in found)


def words(smiles: str, out: Explanation) -> str:
    """Returns the words about a molecule, with atoms by rank, not by place."""
    rank = ranks(smiles, are_equal=False)
    text = summarise(out).replace(smiles, "")

    def by_rank(found: re.Match[str]) -> str:  # two groups of atoms; either may come first
        groups = (re.findall(r"[A-Z][a-z]?(\d+)", one) for one in (found[2], found[4]))
        return f"{found[1]}{sorted(sorted(rank[int(node)] for node in one) for one in groups)}"

    text = re.sub(r"(suffices|are both needed)(: .*?, )(or|and)( .*?)\.", by_rank, text)
    return re.sub(r"([A-Z][a-z]?)(\d+)(?=–| \()", lambda m: f"{m[1]}#{rank[int(m[2])]}", text)


def check_words(one: str, other: str) -> None:
    """Raises unless words are the same; rounding may move the last digit of what was computed."""
    number = r"(?<![#\w.])(-?\d+\.\d+(?:e-?\d+)?|-?\d+e-?\d+|\d+(?= %| of 100))"
    ours, theirs = (re.split(number, text) for text in (one, other))
    assert ours[::2] == theirs[::2]
    for a, b in zip(ours[1::2], theirs[1::2], strict=True):
        assert float(a) == pytest.approx(float(b), rel=0.1, abs=0 if "." in a else 1)


def check_same(one: Explanation, other: Explanation) -> None:
    """Raises unless two explanations of one graph say the same, to rounding."""
    near = {"rtol": 1e-4, "atol": 2e-5}
    for name in ("bond_score", "bond_loss", "atom_score", "atom_loss"):
        ours, theirs = (getattr(out, name) for out in (one, other))
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(ours, theirs, **near)
    assert (one.trust is None) == (other.trust is None)
    if one.trust is not None and other.trust is not None:
        assert one.trust.verdicts == other.trust.verdicts
    assert one.status.flags == other.status.flags


# --- molecules -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("kind", ["background", "own graph"])
def test_equivalent_bonds_and_atoms_have_equal_scores(kind: str, name: str, path: str) -> None:
    some = molecules(300)
    if path == "copies":  # by far the slowest
        some = some[:60]
    parts = explained(explainer(name, kind), list(some))
    for smiles, part in zip(some, parts, strict=True):
        for found in table(part, smiles):
            assert len(dict(found)) == len(set(found)), smiles


@pytest.mark.parametrize("name", SHIPPED)
def test_a_student_gives_equivalent_bonds_equal_scores(name: str) -> None:
    some = molecules(300)
    parts = explained(explainer(name, "student"), list(some))
    for smiles, part in zip(some, parts, strict=True):
        (found,) = table(part, smiles)
        assert len(dict(found)) == len(set(found)), smiles


@pytest.mark.slow
@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("kind", KINDS)
def test_ten_spellings_give_one_table_one_verdict_and_the_same_words(kind: str, name: str) -> None:
    some = molecules(100)
    from rdkit import Chem

    Chem.rdBase.SeedRandomNumberGenerator(0)
    mols = [Chem.MolFromSmiles(smiles) for smiles in some for _ in range(10)]
    spelled = [Chem.MolToSmiles(mol, doRandom=True) for mol in mols]
    parts = explained(explainer(name, kind), spelled)
    for first in range(0, len(spelled), 10):
        own = zip(spelled[first : first + 10], parts[first : first + 10], strict=True)
        told = []
        for smiles, part in own:
            verdicts = None if part.trust is None else part.trust.verdicts
            told.append((table(part, smiles), words(smiles, part), part.status, verdicts))
        for tables, text, *others in told:
            assert others == list(told[0][2:]), some[first // 10]
            check_words(text, told[0][1])
            for ours, theirs in zip(tables, told[0][0], strict=True):
                assert [one[0] for one in ours] == [one[0] for one in theirs]
                wanted = pytest.approx([one[1] for one in theirs], rel=2e-5, abs=2e-5)
                assert [one[1] for one in ours] == wanted


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("kind", KINDS)
def test_a_molecule_is_explained_alike_alone_and_in_company(
    kind: str, name: str, path: str
) -> None:
    nice, some = explainer(name, kind), molecules(40)[:48]
    together = explained(nice, list(some))
    for smiles, part in zip(some, together, strict=True):
        (alone,) = explained(nice, smiles)
        check_same(alone, part)
        check_words(words(smiles, alone), words(smiles, part))


# --- any graph -----------------------------------------------------------------------------------


def turned(graph: Data, seed: int) -> tuple[Data, Tensor]:
    """Returns a graph with its nodes and edges in another order, and the new number of each."""
    generator = torch.Generator().manual_seed(seed)
    number = torch.randperm(int(graph.num_nodes), generator=generator)
    order = torch.randperm(graph.num_edges, generator=generator)
    out = Data(
        x=torch.empty_like(graph.x).index_copy(0, number, graph.x),
        edge_index=number[graph.edge_index][:, order],
        edge_attr=graph.edge_attr[order],
    )
    return out, number


def symmetric_graph(size: int) -> Data:
    """Returns a wheel: a ring of equal nodes around another one; its bonds are of two kinds."""
    ring = torch.arange(1, size)
    pairs = torch.stack([ring, ring.roll(-1)]), torch.stack([torch.zeros_like(ring), ring])
    bonds = torch.cat(pairs, dim=1)
    edges = torch.cat([bonds, bonds.flip(0)], dim=1)
    x = torch.ones(size, NUM_FEATURES)
    x[0] = torch.arange(NUM_FEATURES) / 3
    return Data(x=x, edge_index=edges, edge_attr=torch.ones(edges.size(1), NUM_EDGE_FEATURES))


def by_bond(out: Explanation, number: Tensor) -> dict[tuple[int, int], float]:
    """Returns the loss of each bond by the new numbers of its ends."""
    ends = number[out.bond_index].sort(0).values.t().tolist()
    return {(u, v): loss for (u, v), loss in zip(ends, out.bond_loss.tolist(), strict=True)}


GRAPHS = (*(random_graph(size, size) for size in (4, 7, 11)), symmetric_graph(7))


@pytest.mark.parametrize("columns", [1, 2], ids=["value", "classes"])
@pytest.mark.parametrize("has_background", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_other_orders_of_nodes_and_edges_give_the_same_scores_in_that_order(
    name: str, has_background: bool, columns: int, path: str
) -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_layers": 2, "edge_size": NUM_EDGE_FEATURES}
    model = make_model(name, NUM_FEATURES, columns, **sizes)
    known = list(GRAPHS[:3]) if has_background else None
    nice = NICE(model, background=known, mode="regression" if columns == 1 else "auto")
    for seed, graph in enumerate(GRAPHS):
        check_turned(nice, graph, seed)


@pytest.mark.parametrize("node", [0, 2])
def test_explanations_of_nodes_do_not_depend_on_the_order(node: int) -> None:
    torch.manual_seed(0)
    model: nn.Module = NodeGCN()
    for seed, graph in enumerate(GRAPHS):
        check_turned(NICE(model), graph, seed, node)


def check_turned(nice: NICE, graph: Data, seed: int, node: int | None = None) -> None:
    other, number = turned(graph, seed)
    out = nice.explain(graph, index=node)
    same = nice.explain(other, index=None if node is None else int(number[node]))
    mine, theirs = by_bond(out, number), by_bond(same, torch.arange(number.numel()))
    assert mine == pytest.approx(theirs, rel=1e-4, abs=1e-5)
    for name in ("atom_loss", "atom_score", "atom_stderr"):
        ours, turned_ones = getattr(out, name), getattr(same, name)
        torch.testing.assert_close(ours, turned_ones[number], rtol=1e-4, atol=1e-5)
    assert (out.trust.verdicts, out.status) == (same.trust.verdicts, same.status)
    near = {"rtol": 1e-3, "atol": 1e-4, "equal_nan": True}
    torch.testing.assert_close(out.trust.share, same.trust.share, **near)


def test_the_path_that_is_asked_for_is_what_runs(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, ran = one_part.PATHS[0], []

    def counted(*args: Any) -> Any:
        for chunk in first(*args):
            ran.append(1)
            yield chunk

    monkeypatch.setattr(one_part, "PATHS", (counted, in_copies))
    NICE(make_model("gin", NUM_FEATURES, 2), background=list(GRAPHS)).explain(list(GRAPHS))
    assert ran
