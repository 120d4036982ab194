"""Cases from a stored benchmark and from an explanation: the right values on the right bonds."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nicegnn.bench import run_bench
from nicegnn.datasets import generate_dataset, load_dataset, parse_smiles
from nicegnn.errors import ConfigError, StoreError
from nicegnn.graph.case import find_bonds
from nicegnn.rivals.registry import get_explainer
from nicegnn.tables.case_study import (
    cases_from_bench,
    cases_from_explanation,
    find_scores,
    molecule_order,
)
from nicegnn.target.zoo import GIN
from tests.tables.synthetic_rows import make_world


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory):
    world, out = make_world(), tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in world.environment.items():
            patch.setenv(name, value)
        run_bench(world.config(out, "nice", "saliency", max_graphs=8), progress=False)
        yield out


def test_values_are_the_stored_ones(bench: Path) -> None:
    data = load_dataset("benzene")
    scores = find_scores(bench, ("benzene", "gin", "nice", "both", 0), data)
    cases = cases_from_bench(bench, "benzene", num=3)
    assert len(cases) == 3
    for case in cases:
        position = int(case.title.rpartition(" ")[2])
        row = scores.positions.tolist().index(position)
        some = slice(int(scores.bond_ptr[row]), int(scores.bond_ptr[row + 1]))
        graph = data.test[position]
        assert case.smiles == graph.smiles
        # bond by bond through the ends of the bond in RDKit's molecule
        bonds = find_bonds(graph.edge_index, torch.zeros_like(graph.edge_index[0]))
        ends = [tuple(sorted(pair)) for pair in bonds.index.t().tolist()]
        for number, bond in enumerate(parse_smiles(case.smiles).GetBonds()):
            pair = tuple(sorted((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx())))
            place = ends.index(pair)
            assert case.score[number] == scores.bond_score[some][place]
            assert case.gate[number] == scores.extras["bond_gate"][some][place]
            assert case.big[number] == scores.extras["bond_big"][some][place]
            is_true = bool(graph.edge_truth[bonds.edge_bond == place].any())
            assert bool(case.truth[number]) == is_true
        assert 0 < int(case.truth.sum()) < case.truth.numel()
        assert 0 < case.probability <= 1


def test_molecules_are_drawn_by_seed_or_named(bench: Path) -> None:
    titles = [case.title for case in cases_from_bench(bench, "benzene", num=2)]
    assert titles == [case.title for case in cases_from_bench(bench, "benzene", num=2)]
    data = load_dataset("benzene")
    known = find_scores(bench, ("benzene", "gin", "nice", "both", 0), data).positions.tolist()
    (case,) = cases_from_bench(bench, "benzene", positions=known[-1:])
    assert case.title == f"benzene, test graph {known[-1]}"
    with pytest.raises(ConfigError, match="positions"):
        cases_from_bench(bench, "benzene", positions=[10**6])


def test_missing_scores_are_named(bench: Path) -> None:
    with pytest.raises(StoreError, match="nicegnn bench"):
        cases_from_bench(bench, "benzene", seed=7)
    with pytest.raises(StoreError, match="bond_gate"):
        cases_from_bench(bench, "benzene", explainer="saliency", mechanism="em")


def test_cases_of_an_explanation() -> None:
    graphs = [g for g in generate_dataset("benzene", 12, seed=1) if int(g.y) == 1][:2]
    explanation = get_explainer("saliency", GIN(graphs[0].x.size(1), 2).eval()).explain(graphs)
    cases = cases_from_explanation(explanation, graphs, ["one", "two"])
    assert [case.title for case in cases] == ["one", "two"]
    for case, graph, part in zip(cases, graphs, explanation.split(), strict=True):
        assert torch.equal(case.truth, graph.edge_truth[::2])  # generated bond after bond
        assert torch.equal(case.score, part.bond_score)
        assert bool(case.gate.isnan().all())


def test_order_is_found_by_the_ends_of_bonds() -> None:
    bonds = torch.tensor([[1, 0, 2], [2, 1, 3]])  # of C-C-C-C, not in the order of the string
    assert molecule_order("CCCC", bonds).tolist() == [1, 0, 2]
    with pytest.raises(ConfigError, match="different orders"):
        molecule_order("CCCC", torch.tensor([[0, 0, 0], [1, 2, 3]]))
    with pytest.raises(ConfigError, match="Mutagenicity"):
        molecule_order("", bonds)


def test_auc_of_a_case_is_over_its_bonds() -> None:
    graph = next(g for g in generate_dataset("benzene", 12, seed=1) if int(g.y) == 1)
    explanation = get_explainer("saliency", GIN(graph.x.size(1), 2).eval()).explain([graph])
    (case,) = cases_from_explanation(explanation, [graph])
    pairs = [(a, b) for a in case.score[case.truth] for b in case.score[~case.truth]]
    wins = sum(float(a > b) + 0.5 * float(a == b) for a, b in pairs)
    assert case.auc("score") == pytest.approx(wins / len(pairs))
