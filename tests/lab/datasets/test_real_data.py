"""The real files, where ``NICEGNN_DATA`` names their folder: counts, truth, splits and speed."""

import os
from collections import defaultdict
from itertools import combinations

import pytest
import torch

from nicegnn_lab.datasets.data_files import MissingDataError, data_folder
from nicegnn_lab.datasets.dataset import MoleculeDataset, dataset_statistics, load_dataset
from nicegnn_lab.datasets.readers import mutagenicity, tidy_tables
from nicegnn_lab.paper.numbers import PAPER_STATISTICS, papers_reading

pytestmark = [
    pytest.mark.skipif(
        "NICEGNN_DATA" not in os.environ,
        reason="set NICEGNN_DATA to a folder with the published data files",
    ),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def load(cache):
    def call(name: str, **settings: object) -> MoleculeDataset:
        try:
            return load_dataset(name, cache=cache, **settings)
        except MissingDataError as error:
            pytest.skip(str(error).splitlines()[0])

    return call


@pytest.mark.parametrize(
    ("name", "num_graphs", "num_positives"),
    [
        ("mutagenicity", 1_768, 640),
        ("benzene", 12_000, 6_001),
        ("alkane-carbonyl", 1_125, 375),
        ("fluoride-carbonyl", 8_671, 1_527),
    ],
)
def test_figures_are_the_papers(name, num_graphs, num_positives, load):
    dataset = load(name)
    figures, paper = dataset_statistics(dataset), PAPER_STATISTICS[name]
    assert (figures.num_graphs, figures.num_positives) == (num_graphs, num_positives)
    assert dataset.report.rejected == ()
    assert len(dataset.test) == paper.num_test
    assert figures.positive_ratio == pytest.approx(paper.positive_ratio, abs=0.011)
    assert papers_reading(figures).mean == pytest.approx(paper.true_edges.mean, abs=0.005)
    assert papers_reading(figures).std == pytest.approx(paper.true_edges.std, abs=0.005)
    if name != "alkane-carbonyl":  # its negatives are drawn without a seed upstream
        assert figures.mean_nodes == pytest.approx(paper.mean_nodes, abs=0.005)
        assert figures.mean_edges == pytest.approx(paper.mean_edges, abs=0.02)
    truth = torch.tensor([bool(data.edge_truth.any()) for data in dataset[:500]])
    assert torch.equal(truth, dataset.y[:500] == 1)


@pytest.mark.parametrize("name", ["indole", "pains", "rings-count", "rings-max"])
def test_bxaic_is_near_the_papers_figures(name, load):
    dataset = load(name)
    figures, paper = dataset_statistics(dataset.test), PAPER_STATISTICS[name]
    sizes = [len(dataset.train), len(dataset.valid), len(dataset.test)]
    assert sizes[0] - dataset.report.num_moved == 40_000  # duplicates were moved to train
    assert sum(sizes) == 50_000
    assert dataset.report.num_moved < 20
    assert figures.positive_ratio == pytest.approx(paper.positive_ratio, abs=1.5)
    assert papers_reading(figures).mean == pytest.approx(paper.true_edges.mean, abs=1.5)
    assert figures.mean_nodes == pytest.approx(paper.mean_nodes, abs=0.5)


@pytest.mark.parametrize("name", ["benzene", "alkane-carbonyl", "fluoride-carbonyl"])
def test_no_canonical_smiles_is_in_two_parts(name, load):
    chem = pytest.importorskip("rdkit.Chem")
    dataset = load(name)
    parts = defaultdict(set)
    for smiles, part in zip(dataset.smiles, dataset.part.tolist(), strict=True):
        parts[chem.MolToSmiles(chem.MolFromSmiles(smiles))].add(part)
    assert all(len(found) == 1 for found in parts.values())
    assert dataset.report.num_parted == 0


@pytest.mark.slow
def test_no_canonical_smiles_is_in_two_parts_of_bxaic(load):
    """Rewritten by RDKit: a few rows of the stand-in spell out hydrogens of other rows."""
    chem = pytest.importorskip("rdkit.Chem")
    dataset = load("indole")
    where = defaultdict(set)
    for smiles, part in zip(dataset.smiles, dataset.part.tolist(), strict=True):
        where[chem.MolToSmiles(chem.MolFromSmiles(smiles))].add(part)
    assert all(len(parts) == 1 for parts in where.values())
    if dataset.is_stand_in:
        assert dataset.report.num_parted == 0


def test_no_graph_of_mutagenicity_is_in_two_parts(load):
    """Without SMILES: graphs with the same atoms and bonds are compared by networkx."""
    networkx = pytest.importorskip("networkx")
    dataset = load("mutagenicity")
    alike = defaultdict(list)  # equal graphs are alike; the reverse need not hold
    for data, part in zip(dataset, dataset.part.tolist(), strict=True):
        element, kind = data.x.argmax(1).tolist(), data.edge_attr.argmax(1).tolist()
        graph = networkx.Graph()
        graph.add_nodes_from((atom, {"element": e}) for atom, e in enumerate(element))
        for (u, v), k in zip(data.edge_index.t().tolist(), kind, strict=True):
            graph.add_edge(u, v, kind=k)
        degrees = sorted((element[atom], degree) for atom, degree in graph.degree)
        alike[str(degrees)].append((graph, part))
    num_compared = 0
    for group in alike.values():
        for (one, its_part), (other, other_part) in combinations(group, 2):
            if its_part != other_part:
                num_compared += 1
                assert not networkx.is_isomorphic(
                    one,
                    other,
                    node_match=lambda a, b: a["element"] == b["element"],
                    edge_match=lambda a, b: a["kind"] == b["kind"],
                )
    assert num_compared > 100
    assert dataset.report.num_twins == 5
    assert dataset.report.num_parted == 0


def test_raw_files_and_tidy_table_of_mutagenicity_hold_the_same(load):
    root = data_folder()
    if not (root / "Mutagenicity_raw.zip").is_file():
        pytest.skip("the raw files are not there")
    raw = mutagenicity.read_published({"zip": root / "Mutagenicity_raw.zip"}).records()
    tidy = tidy_tables.read_mutagenicity({"table": root / "mutagenicity.csv.gz"}).records()
    assert [vars(one) for one in raw] == [vars(other) for other in tidy]
