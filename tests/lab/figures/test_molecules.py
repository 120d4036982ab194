"""The case study as a grid of molecules."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nicegnn.errors import ConfigError
from nicegnn_lab.figures.molecules import case_study_figure, cropped
from nicegnn_lab.figures.panels import caption_of, save_figure
from nicegnn_lab.tables.case_study import MoleculeCase


def toluene(title: str = "toluene") -> MoleculeCase:
    truth = torch.tensor([False] + 6 * [True])  # C-c, then the ring
    score = torch.tensor([0.5, 0.9, 0.8, 0.1, 0.9, 0.8, 0.9])  # one true bond below the false one
    ends = torch.tensor([[0, 1, 2, 3, 4, 5, 1], [1, 2, 3, 4, 5, 6, 6]])
    return MoleculeCase(
        title, "Cc1ccccc1", ends, truth, torch.full((7,), torch.nan), truth.float(), score, 0.97
    )


def test_a_row_per_molecule_with_its_agreement(tmp_path) -> None:
    figure = case_study_figure([toluene(), toluene("again")])
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[:3] == [
        "gate (SRB), AUC ↑ undefined",
        "attribution (BIG), AUC ↑ 1.00",
        "score (both), AUC ↑ 0.83",  # 5 of 6
    ]
    assert figure.axes[3].get_ylabel() == "again\np = 0.97"
    assert caption_of(figure).endswith("2 molecule(s).")
    save_figure(figure, tmp_path / "case.png")


def test_nothing_to_show_is_an_error() -> None:
    with pytest.raises(ConfigError, match="cases"):
        case_study_figure([])


def test_all_pictures_lose_the_same_rim() -> None:
    first, second = np.zeros((20, 30, 4)), np.zeros((20, 30, 4))
    first[5, 10, 3] = 1
    second[8, 12, 3] = 1
    parts = cropped([first, second], rim=2)
    assert [part.shape for part in parts] == [(8, 7, 4), (8, 7, 4)]  # rows 3 to 10, columns 8 to 14
    assert parts[0][2, 2, 3] == 1
    empty = np.zeros((4, 4, 4))
    assert cropped([empty])[0].shape == empty.shape
