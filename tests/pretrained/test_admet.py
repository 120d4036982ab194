"""ADMET-AI: its own numbers, all endpoints in the same passes, and warnings where they belong."""

from __future__ import annotations

import csv
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

if find_spec("admet_ai") is None:
    pytest.skip("needs `pip install 'nicegnn[admet]'`", allow_module_level=True)

from nicegnn import NICE
from nicegnn.cli.main import app
from nicegnn.errors import ConfigError
from nicegnn.page.desk import Desk, Shelf
from nicegnn.pretrained.admet import endpoints, load_admet, named_endpoints
from nicegnn.pretrained.ensemble import Ensemble, Finding
from nicegnn.screening.settings import ModelConfig

NITROBENZENE, PARACETAMOL = "O=[N+]([O-])c1ccccc1", "CC(=O)Nc1ccc(O)cc1"


@pytest.fixture(scope="module")
def admet() -> Ensemble:
    explainer = load_admet("AMES,hERG,Half_Life_Obach,Caco2_Wang").explainer
    assert isinstance(explainer, Ensemble)
    return explainer


def by_name(admet: Ensemble, *smiles: str) -> dict[str, Finding]:
    return {one.output.name: one for one in admet.findings([*smiles])}


def test_there_are_41_endpoints_and_others_are_refused_by_name() -> None:
    assert len(endpoints()) == len(named_endpoints("all")) == 41
    assert sum(one.mode == "binary" for one in endpoints().values()) == 31
    assert [one.card.name for one in named_endpoints("herg, AMES,hERG")] == ["hERG", "AMES"]
    poor = {name for name, one in endpoints().items() if one.card.doubt}
    assert {"Half_Life_Obach", "VDss_Lombardo"} <= poor
    for words in ("nosuch", "AMES,nosuch", ""):
        with pytest.raises(ConfigError, match="AMES"):
            named_endpoints(words)


def test_predictions_and_percentiles_are_those_of_admet_ai(admet: Ensemble) -> None:
    """Numbers of ADMETModel(include_physchem=False).predict, admet-ai 2.0.1."""
    found = by_name(admet, NITROBENZENE)
    for name, value, percentile in (
        ("AMES", 0.5292534232139587, 81.01933216168717),
        ("hERG", 0.07142005860805511, 27.94376098418278),
        ("Half_Life_Obach", 7.058619499206543, 34.62214411247803),
    ):
        assert float(found[name].explanation.prediction) == pytest.approx(value, rel=1e-4)
        told = float(found[name].cells(0)["percentile"])
        assert told == pytest.approx(percentile, abs=0.06)


def test_readers_are_warned_and_atoms_point_at_the_nitro_group(admet: Ensemble) -> None:
    found = by_name(admet, NITROBENZENE)
    ames = found["AMES"]
    assert int(ames.explanation.atom_score.argmax()) == 1  # the nitrogen
    assert float(ames.atom_agreement[1]) == 1
    place = ames.explanation.bond_index.t().tolist().index([1, 3])
    assert float(ames.explanation.bond_score[place]) < 0  # cut off, the group counts all the more
    said = {name: one.cells(0)["warning"] for name, one in found.items()}
    for words in ("near 0.5", "Members disagree: from 0.4"):
        assert words in said["AMES"]
    assert "do not use this value" in said["Half_Life_Obach"]
    assert not by_name(admet, "CCCCCCCC")["AMES"].cells(0)["warning"]


def test_scores_and_spread_are_those_of_the_members_one_by_one(admet: Ensemble) -> None:
    one = by_name(admet, PARACETAMOL)["Caco2_Wang"]
    losses = []
    for target, background in admet.groups["regression"]:
        nice = NICE(target.model, background=background, mode="regression")
        losses.append(nice.explain(PARACETAMOL, target=one.output.column).bond_loss)
    wanted, near = torch.stack(losses), {"rtol": 1e-2, "atol": 1e-3}  # NICE merges equal ones
    torch.testing.assert_close(one.explanation.bond_loss, wanted.mean(0), **near)
    torch.testing.assert_close(one.explanation.bond_stderr, wanted.std(0), **near)
    same = (wanted.sign() == wanted.mean(0).sign()).float().mean(0)
    assert float((one.bond_agreement - same).abs().max()) < 0.21  # rounding may turn one sign


def test_a_molecule_does_not_depend_on_its_batch(admet: Ensemble) -> None:
    alone = by_name(admet, PARACETAMOL)
    for name, one in by_name(admet, "C", PARACETAMOL).items():
        mine, other = one.explanation.split()[1], alone[name].explanation
        torch.testing.assert_close(mine.prediction, other.prediction, rtol=1e-4, atol=1e-5)
        near = {"rtol": 1e-3, "atol": 1e-3 * float(other.prediction.abs())}
        torch.testing.assert_close(mine.bond_loss, other.bond_loss, **near)


def test_a_run_has_a_row_per_endpoint_resumes_and_has_all_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mols.csv").write_text(f"id,smiles\na,{NITROBENZENE}\nb,nonsense\nc,CCO\n")
    words = ["explain", "mols.csv", "--model", "admet:AMES,Caco2_Wang", "--out", "out", "--quiet"]
    words += ["--shard-size", "2", "--xlsx", "--sdf", "--svg"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 3, done.output
    kept = (tmp_path / "out/molecules.csv").read_bytes()
    rows = list(csv.DictReader(kept.decode().splitlines()))
    assert [(row["id"], row["endpoint"]) for row in rows] == [
        (name, one) for name in "ac" for one in ("AMES", "Caco2_Wang")
    ]
    assert (rows[0]["prediction"], rows[0]["percentile"]) == ("0.5293", "81.0")
    assert len((tmp_path / "out/rejects.csv").read_text().splitlines()) == 2
    assert len(list((tmp_path / "out/svg").iterdir())) == 4
    assert (tmp_path / "out/molecules.sdf").read_text().count("$$$$") == 4
    (tmp_path / "out/shards/000001.parquet").unlink()
    done = CliRunner().invoke(app, words)
    assert (tmp_path / "out/molecules.csv").read_bytes() == kept
    assert "(2 by an earlier run)" in done.stdout
    assert CliRunner().invoke(app, ["summary", "out", "--min-molecules", "1"]).exit_code == 0
    told = csv.DictReader((tmp_path / "out/summary.csv").read_text().splitlines())
    assert {one["prediction"] for one in told} == {"AMES", "Caco2_Wang"}


def test_the_page_has_each_endpoint() -> None:
    desk = Desk(Shelf(ModelConfig(model="admet:AMES,hERG")))
    first, second, other = desk.models()[:3]
    assert (first.name, second.name) == ("AMES", "hERG")
    assert first.family == second.family != other.family  # shown side by side
    answer = desk.case(NITROBENZENE, "AMES").drawn()
    assert (answer.unit, answer.score_unit) == ("probability", "odds")
    assert any("81.0" in note for note in answer.notes)
