"""ADMET-AI: its own numbers, all endpoints in the same passes, and warnings where they belong."""

from __future__ import annotations

import json
from collections.abc import Callable
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
from nicegnn.pretrained.admet import Admet, Finding, endpoints, named_endpoints

NITROBENZENE, PARACETAMOL = "O=[N+]([O-])c1ccccc1", "CC(=O)Nc1ccc(O)cc1"


@pytest.fixture(scope="module")
def ask() -> Callable[[str], dict[str, Finding]]:
    admet = Admet(named_endpoints("AMES,hERG,Half_Life_Obach,Caco2_Wang"))

    def asked(*smiles: str) -> list[dict[str, Finding]]:
        found = admet.explain([admet.featurizer(one) for one in smiles])
        return [{one.endpoint.id: one for one in row} for row in found]

    asked.admet = admet  # type: ignore[attr-defined]
    return asked


def test_there_are_41_endpoints_and_others_are_refused_by_name() -> None:
    assert len(endpoints()) == len(named_endpoints("all")) == 41
    assert sum(one.is_class for one in endpoints().values()) == 31
    assert [one.id for one in named_endpoints("herg, AMES,hERG")] == ["hERG", "AMES"]
    for words in ("nosuch", "AMES,nosuch", ""):
        with pytest.raises(ConfigError, match=r"ADMES|AMES"):
            named_endpoints(words)


def test_predictions_and_percentiles_are_those_of_admet_ai(ask) -> None:
    """Numbers of ADMETModel(include_physchem=False).predict, admet-ai 2.0.1."""
    (found,) = ask(NITROBENZENE)
    for name, value, percentile in (
        ("AMES", 0.5292534232139587, 81.01933216168717),
        ("hERG", 0.07142005860805511, 27.94376098418278),
        ("Half_Life_Obach", 7.058619499206543, 34.62214411247803),
    ):
        assert found[name].value == pytest.approx(value, rel=1e-4)
        assert found[name].percentile == pytest.approx(percentile, abs=1e-2)


def test_atoms_of_nitrobenzene_point_at_the_nitro_group_where_bonds_contradict(ask) -> None:
    (found,) = ask(NITROBENZENE)
    ames = found["AMES"]
    assert ames.atoms is not None
    assert int(ames.atoms.score.argmax()) == 1  # the nitrogen
    assert float(ames.atoms.agreement[1]) == 1
    place = ames.bond_index.t().tolist().index([1, 3])
    assert float(ames.bonds.score[place]) < 0  # cut off, the group counts all the more
    assert any("contradict" in one and "atom 1 " in one for one in ames.warnings)


def test_scores_and_spread_are_those_of_the_members_one_by_one(ask) -> None:
    (found,) = ask(PARACETAMOL)
    losses = []
    for target, background in ask.admet.members["regression"]:
        nice = NICE(target.model, background=background, mode="regression")
        out = nice.explain(PARACETAMOL, target=found["Caco2_Wang"].endpoint.column)
        losses.append(out.bond_loss)
    wanted = torch.stack(losses)
    bonds = found["Caco2_Wang"].bonds
    torch.testing.assert_close(
        bonds.loss, wanted.mean(0), rtol=1e-2, atol=1e-3
    )  # NICE merges equal ones
    torch.testing.assert_close(bonds.spread, wanted.std(0), rtol=1e-2, atol=1e-3)
    same = (wanted.sign() == wanted.mean(0).sign()).float().mean(0)
    assert float((bonds.agreement - same).abs().max()) < 0.21  # rounding may turn one sign


def test_a_molecule_does_not_depend_on_its_batch(ask) -> None:
    together, alone = ask("C", PARACETAMOL)[1], ask(PARACETAMOL)[0]
    for name, one in together.items():
        assert one.value == pytest.approx(alone[name].value, rel=1e-4)
        torch.testing.assert_close(
            one.bonds.loss, alone[name].bonds.loss, rtol=1e-3, atol=1e-3 * abs(one.value)
        )


def test_readers_are_warned_of_poor_endpoints_unsure_values_and_members(ask) -> None:
    (found,) = ask(NITROBENZENE)
    assert "do not use this value" in found["Half_Life_Obach"].warnings[0]
    assert any("near 0.5" in one for one in found["AMES"].warnings)
    assert any("Members disagree: from 0.4" in one for one in found["AMES"].warnings)
    poor = {one.id for one in endpoints().values() if not one.is_class and one.quality < 0.3}
    assert {"Half_Life_Obach", "VDss_Lombardo"} <= poor
    assert not ask("CCCCCCCC")[0]["AMES"].warnings


def test_commands_write_tables_and_endpoints_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mols.csv").write_text(f"id,smiles\na,{NITROBENZENE}\nb,nonsense\nc,CCO\n")
    words = ["explain", "mols.csv", "--model", "admet:AMES,hERG", "--out", "out", "--quiet"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 3, done.output
    lines = (tmp_path / "out/predictions.csv").read_text().splitlines()
    assert [line.split(",")[1:3] for line in lines[1:]] == [
        [name, one] for name in "ac" for one in ("AMES", "hERG")
    ]
    assert (tmp_path / "out/rejects.csv").read_text().splitlines()[1].startswith("2,b,nonsense,")
    page = (tmp_path / "out/gallery.html").read_text()
    assert page.count("<svg") == 2
    assert "hERG: 0.07" in page
    done = CliRunner().invoke(app, ["explain", "CCO", "--model", "admet:AMES", "--json"])
    told = json.loads(done.output)["molecules"][0]
    assert told["predictions"]["endpoint"] == ["AMES"]
    assert (tmp_path / told["picture"]).is_file()
