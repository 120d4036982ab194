"""Models that Chemprop has written: which task, which background, and no code that runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from nicegnn import NICE
from nicegnn.cli.main import app
from nicegnn.errors import ConfigError, StoreError
from nicegnn.pretrained.chemprop import load_chemprop
from nicegnn.target.chemprop import ChempropModel
from tests.target.chemprop_models import SMILES, make_mpnn, parts

KINDS = (
    *(parts.BondMessagePassing, parts.AtomMessagePassing),
    *(parts.RegressionFFN, parts.BinaryClassificationFFN, parts.MulticlassClassificationFFN),
)


class Evil:
    """Makes a file when it is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A folder as `chemprop train` leaves it, with its table."""
    from chemprop.models.utils import save_model

    (tmp_path / "run/model_0").mkdir(parents=True)
    save_model(
        tmp_path / "run/model_0/best.pt", make_mpnn(words={"n_tasks": 2}), ["first", "second"]
    )
    (tmp_path / "train.csv").write_text("\n".join(["smiles,first", *(f"{s},1" for s in SMILES)]))
    return tmp_path / "run"


def test_one_task_of_a_file_is_explained_as_that_column(saved: Path) -> None:
    loaded = load_chemprop(saved, column="second")
    wanted = NICE(ChempropModel(make_mpnn(words={"n_tasks": 2}), column=1))
    first, second = (one.explain(SMILES[0]) for one in (loaded.explainer, wanted))
    assert torch.equal(first.bond_score, second.bond_score)
    assert loaded.card.classes == ("second = 0", "second = 1")


@pytest.mark.parametrize("predictor", KINDS[2:])
@pytest.mark.parametrize("passing", KINDS[:2])
def test_all_kinds_of_models_are_read_without_trust(
    passing: type, predictor: type, tmp_path: Path
) -> None:
    from chemprop.models.utils import save_model

    words: dict[str, Any] = {"criterion": predictor._T_default_criterion()}
    if predictor is parts.RegressionFFN:
        words["output_transform"] = parts.UnscaleTransform([2.0], [10.0])
    if predictor is parts.MulticlassClassificationFFN:
        words["n_classes"] = 3
    metrics = [parts.RMSE(), parts.BinaryAUROC()]
    mpnn = make_mpnn(passing, predictor, words=words, metrics=metrics, activation="leakyrelu")
    save_model(tmp_path / "one.pt", mpnn)
    loaded = load_chemprop(tmp_path / "one.pt")
    torch.testing.assert_close(
        loaded.explainer.explain(SMILES).prediction, NICE(mpnn).explain(SMILES).prediction
    )


def test_a_file_that_could_run_code_is_refused_unless_it_is_trusted(
    saved: Path, tmp_path: Path
) -> None:
    file, mark = saved / "model_0/best.pt", tmp_path / "mark"
    held = torch.load(file, weights_only=False)
    torch.save(held | {"numbers": [np.float64(1), np.arange(3)]}, file)
    load_chemprop(file, column="first")
    torch.save(held | {"more": Evil(mark)}, file)
    with pytest.raises(StoreError, match=r"mkdir.*--trust"):
        load_chemprop(file, column="first")
    assert not mark.exists()
    load_chemprop(file, column="first", trusted=True)
    assert mark.exists()


def test_other_files_and_columns_are_refused_by_name(saved: Path, tmp_path: Path) -> None:
    from chemprop.models import MulticomponentMPNN
    from chemprop.models.utils import save_model

    with pytest.raises(ConfigError, match="first, second"):
        load_chemprop(saved)
    torch.save({"weights": torch.ones(2)}, tmp_path / "other.pt")
    with pytest.raises(StoreError, match="Could not find hyper parameters"):
        load_chemprop(tmp_path / "other.pt")
    (tmp_path / "text.pt").write_text("no model")
    with pytest.raises(StoreError, match="Chemprop v2"):
        load_chemprop(tmp_path / "text.pt")
    with pytest.raises(ConfigError, match="no folder"):
        load_chemprop(tmp_path / "no folder")
    several = parts.MulticomponentMessagePassing([parts.BondMessagePassing() for _ in "ab"], 2)
    predictor = parts.RegressionFFN(input_dim=several.output_dim)
    mpnn = MulticomponentMPNN(several, parts.MeanAggregation(), predictor)
    save_model(tmp_path / "several.pt", mpnn, ["y"])
    with pytest.raises(StoreError, match="Chemprop v2 of single molecules"):
        load_chemprop(tmp_path / "several.pt")


@pytest.mark.parametrize("predictor", KINDS[2:])
def test_several_models_of_a_folder_are_their_mean_with_the_spread_as_error(
    predictor: type, tmp_path: Path
) -> None:
    from chemprop.models.utils import save_model

    words = {"n_classes": 3} if predictor is parts.MulticlassClassificationFFN else {}
    mpnns = [make_mpnn(predictor=predictor, words=words) for _ in range(3)]
    for number, mpnn in enumerate(mpnns):
        with torch.no_grad():  # they are nearly of one mind
            mpnn.predictor.ffn[-1][-1].weight.mul_(1 + 0.1 * number)
        (tmp_path / f"model_{number}").mkdir()
        save_model(tmp_path / f"model_{number}/best.pt", mpnn, ["y"])
    ensemble = load_chemprop(tmp_path).explainer.having(SMILES)
    (found,) = ensemble.findings(SMILES[:2])
    out = found.explanation
    each = [NICE(mpnn, background=SMILES) for mpnn in mpnns]
    each = [one.explain(SMILES[:2], target=out.target) for one in each]
    told = torch.stack([one.prediction for one in each])
    mean = told.mean(0) if out.unit == "value" else told.exp().mean(0).log()
    torch.testing.assert_close(out.prediction, mean, rtol=1e-4, atol=1e-4)
    assert torch.equal(out.target, mean.argmax(1))
    loss, near = torch.stack([one.atom_loss for one in each]), {"rtol": 1e-2, "atol": 1e-2}
    torch.testing.assert_close(out.atom_loss, loss.mean(0), **near)
    torch.testing.assert_close(out.atom_stderr, loss.std(0), **near)
    falls = torch.stack([one.bond_loss for one in each])
    kept = (out.bond_loss > 0) & (found.bond_agreement == 1)  # gains are negative here alone
    torch.testing.assert_close(out.bond_loss[kept], falls.mean(0)[kept], **near)
    assert int(kept.sum()) > 3
    save_model(tmp_path / "model_0/best.pt", make_mpnn(predictor=predictor, words=words), ["z"])
    with pytest.raises(ConfigError, match="same task"):
        load_chemprop(tmp_path)


def test_a_command_explains_a_file_with_the_table_that_it_is_given(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["explain", "train.csv", "--model", "chemprop:run", "--column", "first", "--quiet"]
    done = CliRunner().invoke(app, [*words, "--background", "train.csv", "--out", "out"])
    assert done.exit_code == 0, done.output
    assert "with a background of 5 molecules" in done.output
    lines = (tmp_path / "out/molecules.csv").read_text().splitlines()
    assert len(lines) == 1 + len(SMILES)
    assert "first = " in lines[1]
    assert (tmp_path / "out/gallery.html").is_file()
