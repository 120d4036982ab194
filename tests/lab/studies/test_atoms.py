"""The study of atoms: its parts share no molecule, its scores are what they are said to be."""

from __future__ import annotations

import csv
import gzip
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest
import torch

from nicegnn.molecule.featurizers import FEATURIZERS
from nicegnn.target.training import TrainConfig
from nicegnn_lab.bench.run import run_study
from nicegnn_lab.datasets.readers.atoms import FILES, atom_molecules
from nicegnn_lab.datasets.table_molecules import plain_smiles, table_molecules
from nicegnn_lab.studies.atom_fidelity import REMOVALS, SHARES, answers_without, fidelity
from nicegnn_lab.studies.atom_scores import EXCHANGES, OTHERS, Ground, all_scores, lay_ground
from nicegnn_lab.studies.atoms import AtomStudy, AtomTask
from nicegnn_lab.tables.atoms import atom_tables
from tests.lab.studies.small_runs import rows_of_run, run, use_world

pytest.importorskip("rdkit")
QUICK = TrainConfig(learning_rate=0.01, batch_size=16, epochs=3)
CLIFF = "CHEMBL287_Ki"


def write(path: Path, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    with gzip.open(path, "wt", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([columns, *rows])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with few molecules of each kind."""
    folder = tmp_path_factory.mktemp("data")
    smiles = ["".join(word) for word in product("CNO", repeat=4)]  # a word and its reverse are one
    counted = []
    for number, word in enumerate(smiles):
        truth = " ".join(str(int(atom == "N") - int(atom == "O")) for atom in word)
        part = "test" if number % 3 == 0 else "train"
        counted.append(("N_minus_O", part, "", word, word.count("N") - word.count("O"), truth))
    columns = ("task", "part", "mol_id", "smiles", "activity", "atom_truth")
    write(folder / FILES["N_minus_O"][0], columns, counted)
    chains = ["C" * (4 + n // 2) + ("N" if n % 2 else "O") for n in range(40)]
    made = [(CLIFF, n, word, 0.1 * n, int(n < 20)) for n, word in enumerate(chains)]
    logp = [("CO", -0.3915, "train"), ("CC", 1.0262, "train"), ("CCO", -0.0014, "test")]
    write(folder / FILES["crippen"][0], ("smiles", "logp", "part"), logp)
    molecules, pairs = FILES[CLIFF]
    write(folder / molecules, ("target", "row", "smiles", "y", "cliff"), made)
    ends = [
        (CLIFF, n, n + 1, len(chains[n]) - 1, len(chains[n]) - 1, -1.5) for n in range(0, 20, 2)
    ]
    columns = ("target", "row_i", "row_j", "atoms_i", "atoms_j", "y_i_minus_y_j")
    write(folder / pairs, columns, ends)
    return folder


@pytest.fixture(scope="module")
def ground(data: Path) -> Ground:
    parts = atom_molecules("N_minus_O", 0, data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NICEGNN_DATA", str(data))
        task = AtomTask("N_minus_O", 0)
        model = task.model("gine", data)
        task.train(model, QUICK)
    return lay_ground(model, "regression", parts.test[:6], parts.train, 0)


def test_parts_share_no_molecule(data: Path) -> None:
    for name in ("N_minus_O", CLIFF):
        found = atom_molecules(name, 0, data)
        keys = [{plain_smiles(g.smiles) for g in p} for p in (found.train, found.valid, found.test)]
        assert all(keys)
        assert sum(map(len, keys)) == len(set.union(*keys))


def test_pairs_lie_within_the_test_part(data: Path) -> None:
    found = atom_molecules(CLIFF, 0, data)
    assert found.pairs
    for pair in found.pairs:
        first, second = (found.test[place] for place in pair.place)
        assert (first.smiles[-1], second.smiles[-1]) == ("O", "N")
        assert [own.tolist() for own in pair.atoms] == [[first.num_nodes - 1]] * 2


def test_shapley_values_add_up_to_what_zeros_leave(ground: Ground) -> None:
    batch = ground.batch
    left = ground.answer(torch.zeros_like(batch.x))
    total = torch.zeros(batch.num_graphs)
    total.index_add_(0, batch.batch, OTHERS["Shapley"](ground).detach())
    torch.testing.assert_close(total, (ground.clean - left).detach(), atol=1e-4, rtol=1e-4)


def test_myerson_values_add_up_to_the_prediction(ground: Ground) -> None:
    total = torch.zeros(ground.batch.num_graphs)
    total.index_add_(0, ground.batch.batch, OTHERS["Myerson"](ground).detach())
    torch.testing.assert_close(total, ground.clean.detach(), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("atom", [0, 1, 3])
def test_one_atom_by_hand(ground: Ground, atom: int) -> None:
    graph = ground.batch.get_example(0)
    model, clean = ground.query.target.model, ground.clean[0]

    def value(x: torch.Tensor, edge_index: torch.Tensor, edge_attr: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = model(x, edge_index, edge_attr=edge_attr)
        return out[0, 0]

    with torch.no_grad():
        empty = graph.x.clone()
        empty[atom] = 0
        zero = clean - value(empty, graph.edge_index, graph.edge_attr)
        keep = torch.arange(graph.num_nodes) != atom
        inside = keep[graph.edge_index].all(0)
        number = keep.long().cumsum(0) - 1
        bonds = number[graph.edge_index[:, inside]]
        gone = clean - value(graph.x[keep], bonds, graph.edge_attr[inside])
        alone = 0.0
        for kind in ground.background.features["x"]:
            nothing = kind.expand_as(graph.x).clone()
            only = nothing.clone()
            only[atom] = graph.x[atom]
            both = (value(x, graph.edge_index, graph.edge_attr) for x in (only, nothing))
            alone += float(next(both) - next(both)) / ground.background.features["x"].size(0)
    found = {name: OTHERS[name](ground)[atom].item() for name in ("zero", "occlusion")}
    assert found["zero"] == pytest.approx(float(zero), abs=1e-4)
    assert found["occlusion"] == pytest.approx(float(gone), abs=1e-4)
    scores = all_scores(ground)
    assert float(scores["exchange, alone"][atom]) == pytest.approx(alone, abs=1e-4)
    both = (scores["exchange"] + scores["exchange, alone"]) / 2  # of values
    torch.testing.assert_close(scores["exchange, both"], both)


@pytest.mark.parametrize("way", REMOVALS)
def test_answers_without_atoms_by_hand(ground: Ground, way: str) -> None:
    model, graph, clean = ground.query.target.model, ground.batch.get_example(1), ground.clean
    gone = torch.zeros(2, int(ground.batch.num_nodes), dtype=torch.bool)
    first = int(ground.batch.ptr[1])
    gone[1, [first, first + 2]] = True
    is_gone = gone[1, first : first + graph.num_nodes]
    found = answers_without(ground, gone, way)
    torch.testing.assert_close(found[0], clean, atol=1e-5, rtol=1e-5)  # nothing is removed
    others = torch.arange(clean.numel()) != 1
    torch.testing.assert_close(found[1, others], clean[others], atol=1e-5, rtol=1e-5)
    kinds = ground.background.features["x"] if way == "exchange" else torch.zeros_like(graph.x[:1])
    values = []
    with torch.no_grad():
        for kind in kinds:
            x = torch.where(is_gone.unsqueeze(1), kind, graph.x)
            if way == "out":
                graph = graph.subgraph(~is_gone)
                x = graph.x
            values.append(float(model(x, graph.edge_index, edge_attr=graph.edge_attr)[0, 0]))
    assert float(found[1, 1]) == pytest.approx(sum(values) / len(values), abs=1e-4)


def test_fidelity_of_a_known_order_by_hand(ground: Ground) -> None:
    """The score is what zeros leave of an atom, so its best atoms are known."""
    zero = OTHERS["zero"](ground).detach()
    rows = {(b.metric, b.protocol): b for b in fidelity(ground, {"zero": zero})}
    assert len(rows) == 4 * len(REMOVALS)
    home, side = ground.batch.batch, ground.rise.sign()
    best = torch.zeros_like(home, dtype=torch.bool)
    for graph in range(ground.batch.num_graphs):
        own = (home == graph).nonzero().view(-1)
        most = max(1, round(0.5 * own.numel()))
        best[own[(side[graph] * zero[own]).argsort(descending=True)[:most]]] = True
    left = ground.answer(torch.where(best.unsqueeze(1), 0.0, ground.batch.x)).detach()
    rise = ground.rise.abs()
    share = (side * (left - ground.base)).clamp(min=0).minimum(rise).sum() / rise.sum()
    values = torch.as_tensor(rows["lost", "zero"].value)
    assert float(values[SHARES.index(0.5)]) == pytest.approx(1 - float(share), abs=1e-4)
    area = float(torch.trapezoid(values, torch.tensor(SHARES).double())) / 0.4
    assert float(rows["lost_area", "zero"].value) == pytest.approx(area)


def test_prepared_molecules_need_no_rdkit(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = atom_molecules("crippen", 0, data)
    table_molecules.cache_clear()
    monkeypatch.setitem(sys.modules, "rdkit", None)
    again = atom_molecules("crippen", 0, data)
    for one, other in zip(first.train + first.test, again.train + again.test, strict=True):
        assert all(torch.equal(one[key], other[key]) for key in ("x", "edge_attr", "edge_index"))
        assert torch.equal(one.atom_truth, other.atom_truth)
        assert one.smiles == other.smiles


def test_molecules_of_a_table_are_those_of_the_featuriser(data: Path) -> None:
    for graph in atom_molecules(CLIFF, 0, data).test:
        made = FEATURIZERS["rich"](graph.smiles)
        for key in ("x", "edge_attr", "edge_index"):
            assert torch.equal(graph[key], made[key])
            assert graph[key].dtype == made[key].dtype


def test_rows_and_tables_hold_every_score(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NICEGNN_DATA", str(data))
    study = AtomStudy(training_config=QUICK)
    report = run_study(
        study, ["N_minus_O", CLIFF], ["gin"], out=tmp_path / "atoms", device="cpu", max_graphs=8
    )
    assert not report.failed, report.errors
    rows = rows_of_run(tmp_path, "atoms")
    assert set(rows["setting"]) == {"", *EXCHANGES, *OTHERS}
    area = rows[(rows["metric"] == "negative_auc") & (rows["setting"] == "random")]["value"]
    assert area.dropna().between(0, 1).all()
    tables = atom_tables(tmp_path)
    assert any("Activity cliffs" in table.title for table in tables)
    assert sum(len(table.rows) == len({*EXCHANGES, *OTHERS}) for table in tables) == 6


def test_groups_of_a_benchmark_are_read_by_its_stored_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_world(monkeypatch)
    run(AtomStudy(), tmp_path)
    rows = rows_of_run(tmp_path, "atoms")
    assert set(rows["setting"]) == {"", *EXCHANGES, *OTHERS}
    (title,) = [table.title for table in atom_tables(tmp_path) if "of a group" in table.title]
    assert title == "ROC-AUC of the atoms of a group, in percent"
