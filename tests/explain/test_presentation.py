"""Explanations for people: tables, words and pictures, against explanations made by hand."""

from __future__ import annotations

import pickle
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pandas as pd
import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.utils import from_smiles

from nicegnn import NICE, Explanation, Flag, NICEConfig, Status, get_explainer
from nicegnn.errors import ConfigError
from nicegnn.explain.explanation import concatenate, scores_only, smiles_of
from nicegnn.graph.case import make_case
from nicegnn.molecule.drawing import PALETTES, Ramp
from nicegnn.molecule.featurizers import graphs_from_smiles
from nicegnn.molecule.smiles import MoleculeError
from nicegnn.target.zoo import GIN
from tests.conftest import make_graph
from tests.molecule.seen import fills, texts

pytest.importorskip("rdkit", reason="needs RDKit: pip install 'nicegnn[molecules]'")

ETHANOL, ACETAMIDE = "CCO", "CC(=O)N"


def explained(graphs: list[Data], scores: list[float], log_odds: float = 2.0) -> Explanation:
    """Scores of all bonds, class 1 predicted for each graph."""
    case = make_case(Batch.from_data_list(graphs))
    num = len(graphs)
    odds = torch.tensor([[0.0, log_odds]]).repeat(num, 1)
    target = torch.ones(num, dtype=torch.long)
    return scores_only(case, torch.tensor(scores), target, odds.log_softmax(1))


@pytest.fixture
def one() -> Explanation:
    """Ethanol; C1-O2 is best."""
    return explained(graphs_from_smiles(ETHANOL), [0.25, 0.75])


@pytest.fixture
def two() -> Explanation:
    """Ethanol and acetamide, whose edges PyG has sorted by node: C0-C1, C1-O2, C1-N3."""
    return explained(
        graphs_from_smiles([ETHANOL, ACETAMIDE], from_smiles), [0.1, 0.2, 0.3, 0.9, 0.6]
    )


def test_smiles_are_kept_through_split_and_joining(one: Explanation, two: Explanation) -> None:
    assert one.smiles == (ETHANOL,)
    assert two.smiles == (ETHANOL, ACETAMIDE)
    assert [part.smiles for part in two.split()] == [(ETHANOL,), (ACETAMIDE,)]
    assert concatenate([one, two]).smiles == (ETHANOL, ETHANOL, ACETAMIDE)
    plain = explained([make_graph([(0, 1)], 2, 0)], [1.0])
    assert plain.smiles is None
    assert concatenate([plain, one]).smiles == ("", ETHANOL)
    assert concatenate([plain, plain]).smiles is None


@pytest.mark.parametrize("carried", [None, 3, [["CC"]], ["CC", "CC"], [""], [None]])
def test_odd_smiles_of_a_batch_are_no_smiles(carried: object) -> None:
    batch = Batch.from_data_list([make_graph([(0, 1)], 2, 0)])
    batch.smiles = carried
    assert smiles_of(batch) is None


def test_explainers_keep_the_smiles_of_graphs() -> None:
    graphs = graphs_from_smiles([ETHANOL, ACETAMIDE])
    model = GIN(14, 2)
    nice = NICE(model, NICEConfig().with_(batch_size=1))
    assert nice.explain(graphs).smiles == (ETHANOL, ACETAMIDE)
    assert get_explainer("saliency", model).explain(graphs[0]).smiles == (ETHANOL,)


def test_atom_scores_are_split_and_joined(two: Explanation) -> None:
    scored = replace(two, atom_score=torch.arange(7.0), atom_stderr=torch.arange(7.0) / 10)
    parts = scored.split()
    assert [part.atom_score.tolist() for part in parts] == [[0, 1, 2], [3, 4, 5, 6]]
    assert parts[1].atom_stderr.tolist() == pytest.approx([0.3, 0.4, 0.5, 0.6])
    joined = concatenate(parts)
    assert torch.equal(joined.atom_score, scored.atom_score)
    assert torch.equal(joined.atom_stderr, scored.atom_stderr)
    assert concatenate([parts[0], two.split()[1]]).atom_score is None


def test_all_tensors_go_to_a_device_and_through_pickle() -> None:
    graph = make_graph([(0, 1), (1, 2)], 3, 0)
    nice = NICE(GIN(graph.x.size(1), 2), NICEConfig())
    out = nice.explain(graph, atoms=True)
    for copy in (pickle.loads(pickle.dumps(out)), out.to("cpu")):
        assert torch.equal(copy.bond_score, out.bond_score)
        assert torch.equal(copy.bonds.index, out.bonds.index)
        assert torch.equal(copy.trust.largest, out.trust.largest)
        assert copy.status == out.status
    away = out.to("meta")  # a device that every machine has
    assert {one.device.type for one in tensors_of(away)} == {"meta"}
    assert len(tensors_of(away)) == len(tensors_of(out)) > 20
    assert {one.device.type for one in tensors_of(out)} == {"cpu"}


def tensors_of(value: object) -> list[torch.Tensor]:
    """All tensors that an object holds, at any depth."""
    if isinstance(value, torch.Tensor):
        return [value]
    inner = vars(value).values() if hasattr(value, "__dict__") else ()
    return [one for part in inner for one in tensors_of(part)]


def test_table_of_bonds_by_hand(two: Explanation) -> None:
    frame = two.to_frame()
    score = frame.pop("score")
    assert score.tolist() == pytest.approx([0.1, 0.2, 0.3, 0.9, 0.6])
    nan = float("nan")
    expected = pd.DataFrame(
        {
            "graph": [0, 0, 1, 1, 1],
            "smiles": [ETHANOL] * 2 + [ACETAMIDE] * 3,
            "bond": [0, 1, 0, 1, 2],
            "atom_a": [0, 1, 0, 1, 1],
            "atom_b": [1, 2, 1, 2, 3],
            "element_a": ["C"] * 5,
            "element_b": ["C", "O", "C", "O", "N"],
            "bond_type": ["single", "single", "single", "double", "single"],
            "rank": [2, 1, 3, 1, 2],
            "loss": [nan] * 5,
            "stderr": [nan] * 5,
            "gate": [nan] * 5,
            "reached": [True] * 5,
        }
    )
    pd.testing.assert_frame_equal(frame, expected, check_dtype=False)


def test_tables_of_atoms_and_graphs(two: Explanation) -> None:
    with pytest.raises(ConfigError, match=r"no scores of atoms.*to_frame\('bonds'\)"):
        two.to_frame("atoms")
    scored = replace(two, atom_score=torch.tensor([1.0, 3, 2, 0, 0, -1, 5]))
    frame = scored.to_frame("atoms")
    assert frame["element"].tolist() == ["C", "C", "O", "C", "C", "O", "N"]
    assert frame["atom"].tolist() == [0, 1, 2, 0, 1, 2, 3]
    assert frame["rank"].tolist() == [3, 1, 2, 3, 3, 2, 1]  # by size
    assert frame["stderr"].isna().all()
    assert frame["loss"].isna().all()
    lost = replace(scored, atom_loss=torch.arange(-3.0, 4)).to_frame("atoms")
    assert lost["loss"].tolist() == [-3, -2, -1, 0, 1, 2, 3]
    graphs = two.to_frame("graphs")
    assert graphs["probability"].tolist() == pytest.approx([0.880797] * 2)
    assert graphs["explained"].tolist() == graphs["predicted"].tolist() == [1, 1]
    with pytest.raises(ConfigError, match=r"`kind` must be one of .* \(got 'edges'\)"):
        two.to_frame("edges")


def test_tables_know_no_chemistry_of_another_molecule(one: Explanation) -> None:
    other = replace(one, smiles=("CCCC",))
    frame = other.to_frame()
    assert frame[["element_a", "element_b", "bond_type"]].isna().all(axis=None)
    assert "does not describe this graph" in other.summary()
    assert "1–2 (0.75)" in other.summary()
    plain = replace(one, smiles=None).to_frame()
    assert "element_a" not in plain
    assert "smiles" not in plain


def test_words_about_one_graph(one: Explanation) -> None:
    assert one.summary() == (
        "CCO: predicted class 1 with probability 0.88. Best of 2 bonds: O2–C1 (0.75), C0–C1 (0.25)."
    )
    other = replace(one, target=torch.tensor([0]))
    assert "explained is class 0 (probability 0.12)" in other.summary()
    sure = replace(one, prediction=torch.tensor([[0.0, 9.0]]).log_softmax(1))
    assert "class 1 with probability > 0.99" in sure.summary()
    value = replace(one, prediction=torch.tensor([[3.5]]), target=torch.tensor([0]))
    assert value.summary().startswith("CCO: predicted value 3.5. ")
    assert value.draw().label == "predicted 3.5"
    flagged = replace(one, status=Status((Flag.INSENSITIVE,), ("A note.",)))
    assert "Take care (INSENSITIVE): Damaging messages" in flagged.summary()
    assert flagged.summary().endswith("\nA note.")


def test_words_about_many_graphs(two: Explanation) -> None:
    status = Status((Flag.OK, Flag.NOT_RESTORED | Flag.INSENSITIVE))
    lines = replace(two, status=status).summary().splitlines()
    assert lines[0] == "2 graphs were explained."
    assert lines[1].startswith("Graph 0 (CCO): predicted class 1")
    assert lines[2].endswith("O2–C1 (0.9), N3–C1 (0.6), C0–C1 (0.3). [INSENSITIVE, NOT_RESTORED]")
    assert lines[3].startswith("Take care (INSENSITIVE, 1 of 2 graphs): ")
    assert two.summary(most=1).splitlines()[-1] == "... and 1 more."
    with pytest.raises(ConfigError, match="`most`"):
        two.summary(0)


def test_graph_without_bonds_can_be_told_and_drawn() -> None:
    alone = explained(graphs_from_smiles("C"), [])
    assert "No bond can be scored." in alone.summary()
    assert "Take care (NO_EDGES)" in alone.summary()
    assert fills(alone.draw()) == {}
    assert alone.to_frame().empty


def test_picture_of_one_molecule_has_title_legend_and_outlines(one: Explanation) -> None:
    assert texts(one.draw())[:4] == ["class 1, p = 0.88", "0", "1", "2"]  # numbers of atoms
    assert texts(one.draw())[4:] == ["score of the method", "0", "0.75"]
    marked = one.draw(top=1, truth=torch.tensor([True, False]), title="Ethanol")
    assert texts(marked)[0] == "Ethanol"
    assert "green: true bonds; black: best 1" in texts(marked)
    assert "C0-C1, single, score 0.25, true" in fills(marked)
    assert "black: top 50%" in texts(one.draw(top=0.5))
    atoms = replace(one, atom_score=torch.tensor([0.5, -1.0, 0.0])).draw()
    assert texts(atoms)[-2:] == ["−1", "1"]
    assert fills(atoms)["C1, score -1"] == PALETTES["score"].negative


def test_gates_losses_and_changes_can_be_drawn(one: Explanation) -> None:
    values = replace(
        one,
        bond_gate=torch.tensor([0.0, 1.0]),
        bond_loss=torch.tensor([0.5, 1.0]),
        bond_change=torch.tensor([-2.0, 1.0]),
    )
    gate, loss, change = (values.draw(value=name) for name in ("gate", "loss", "change"))
    assert fills(gate) == {"C1-O2, single, score 1": PALETTES["gate"].positive}
    assert texts(loss)[-3:] == ["loss", "0", "1"]
    assert fills(change)["C0-C1, single, score -2"] == PALETTES["score"].negative
    assert texts(change)[-2:] == ["−2", "2"]


def test_graphs_share_one_scale_and_shares_of_the_odds_a_fixed_one(two: Explanation) -> None:
    picture = two.draw(columns=2, size=(200, 150))
    titles = [text for text in texts(picture) if "class" in text]
    assert titles == ["0: class 1, p = 0.88", "1: class 1, p = 0.88"]
    assert picture.size == (408, 188)
    ramp = Ramp(PALETTES["score"], 0.9)
    assert fills(picture)["C1-O2, single, score 0.2"] == ramp.colour(0.2)
    shares = fills(replace(two, unit="odds").draw())
    assert shares["C1-O2, single, score 0.2"] == Ramp(PALETTES["score"], 1.0).colour(0.2)
    few = two.draw(most=1)
    assert "1 of 2 graphs" in texts(few)
    assert len(fills(few)) == 2


def test_plain_graphs_and_explained_nodes_are_drawn() -> None:
    pytest.importorskip("networkx")
    graph = make_graph([(0, 1), (1, 2), (2, 0), (2, 3)], 4, seed=0)
    plain = explained([graph], [0.1, 0.2, 0.3, 0.4])
    assert "2-3, score 0.4" in fills(plain.draw())
    path = make_graph([(k, k + 1) for k in range(99)], 100, seed=0)
    out = explained([path], [0.5] * 99)
    near = torch.arange(99) < 3
    node = replace(
        out, index=torch.tensor([1]), bond_reached=near, bond_score=out.bond_score * near
    )
    assert len(fills(node.draw())) == len(node.draw().points) - 1 == 3  # what can influence it
    assert node.summary().startswith("Node 1: predicted class 1")
    assert node.to_frame()["node"].unique().tolist() == [1]


def test_a_molecule_can_be_drawn_as_a_plain_graph_or_be_named_later(one: Explanation) -> None:
    pytest.importorskip("networkx")
    assert "1-2, score 0.75" in fills(replace(one, smiles=None).draw())
    named = replace(one, smiles=("CCN",)).draw()
    assert any(note.startswith("C1-N2") for note in fills(named))


def test_bad_drawings_are_explained(one: Explanation) -> None:
    for options, reason in (
        ({"size": (-5, 10)}, r"`size` must be width and height .*got \(-5, 10\)"),
        ({"palette": "rainbow"}, "got 'rainbow'"),
        ({"palette": torch.zeros(2)}, "`palette` must be"),
        ({"value": "edge"}, r"`value` must be one of .*got 'edge'"),
        ({"value": "gate"}, r"`value` must be one that the explainer gives \(got 'gate'"),
        ({"top": 1.5}, r"`top` must be a share in \(0, 1\]"),
        ({"most": 0}, "`most` must be"),
        ({"columns": 0}, "`columns` must be"),
        ({"title": 3}, "`title` must be a text"),
        (
            {"truth": torch.ones(3, dtype=torch.bool)},
            r"`truth` must be a mask with one entry per bond, 2",
        ),
    ):
        with pytest.raises(ConfigError, match=reason):
            one.draw(**options)
    with pytest.raises(MoleculeError, match="it has 6 atoms, the graph 3 nodes"):
        replace(one, smiles=("c1ccccc1",)).draw()


def test_notebooks_show_words_and_pictures(one: Explanation, two: Explanation) -> None:
    bundle = two._repr_mimebundle_()
    assert bundle["text/plain"] == two.summary()
    page = bundle["text/html"]
    assert "Graph 1 (CC(=O)N): predicted class 1" in page
    assert page.count("<svg") == 1
    ElementTree.fromstring(re.search("<svg.*</svg>", page, re.S)[0])
    other = replace(one, smiles=("C<C",))._repr_mimebundle_()["text/html"]  # nobody can read it
    assert "No picture: " in other
    assert "C&lt;C" in other
    assert "C<C" not in other
    many = concatenate([one] * 30)._repr_mimebundle_()["text/html"]
    assert "... and 24 more." in many
    assert many.count("class 1, p = 0.88</text>") == 6
