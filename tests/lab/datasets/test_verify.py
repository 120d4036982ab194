"""`verify_dataset`: agreement where there is some, and every exception named."""

import numpy as np
import pytest

from tests.lab.datasets.small_files import (
    published_benzene,
    published_bxaic,
    tidy_benzene_rows,
    tidy_bxaic,
    tidy_mutagenicity,
    tu_folder,
    write_csv,
)

pytest.importorskip("rdkit", reason="needs RDKit: pip install 'nicegnn[molecules]'")

from nicegnn_lab.datasets import DamagedFileError, verify_dataset


def test_small_sets_agree(tmp_path):
    published_benzene(tmp_path)
    tidy_mutagenicity(tmp_path)
    tidy_bxaic(tmp_path)
    for name, number in {
        "benzene": 4,
        "mutagenicity": 4,
        "indole": 3,
        "rings-max": 3,
        "B": 3,
    }.items():
        result = verify_dataset(name, root=tmp_path)
        assert result.disagreements == ()
        assert result.num_checked == result.num_agreeing == number
    published_bxaic(tmp_path)
    result = verify_dataset("indole", root=tmp_path)
    assert (result.layout, result.num_agreeing) == ("published", 3)
    assert set(result.checksums.values()) == {"no record"}


def test_every_exception_is_listed(tmp_path):
    rows = tidy_benzene_rows()
    rows[0]["masks"] = "[[1, 2, 3, 4, 5]]"
    rows[1]["label"] = 1
    write_csv(tmp_path / "graphxai_benzene.csv.gz", rows)
    result = verify_dataset("benzene", root=tmp_path)
    assert [item.row for item in result.disagreements] == [0, 1]
    assert "atoms [1, 2, 3, 4, 5] are published" in result.disagreements[0].what
    assert result.disagreements[1].what == "label 1 is published, 0 derived"
    assert result.num_agreeing == 2
    assert result.checksums == {"graphxai_benzene.csv.gz": "other"}


def test_a_missing_alternative_is_an_exception(tmp_path):
    rows = tidy_benzene_rows()
    rows[2]["masks"] = str([[*range(6)], [*range(6), *range(7, 13)]])
    write_csv(tmp_path / "graphxai_benzene.csv.gz", rows)
    (item,) = verify_dataset("benzene", root=tmp_path).disagreements
    assert item.what == "2 alternatives are published, 3 derived, and they differ"


def test_published_masks_are_what_is_compared(tmp_path):
    folder = published_benzene(tmp_path, masks=False)
    assert "labels only" in verify_dataset("benzene", root=tmp_path).compared
    entries = np.empty((4, 1), dtype=object)
    for index, size in enumerate((7, 6, 13, 3)):
        entries[index, 0] = {"nodes": np.zeros((size, 1), dtype=np.float32)}
    path = folder / "true_raw_attribution_datadicts.npz"
    np.savez(path, datadict_list=entries)
    assert [item.row for item in verify_dataset("benzene", root=tmp_path).disagreements] == [0, 2]
    np.savez(path, datadict_list=entries[:3])
    with pytest.raises(DamagedFileError, match=r"masks for 4 molecules \(got 3\)"):
        verify_dataset("benzene", root=tmp_path)


def test_sampling_and_unreadable_rows_are_counted(tmp_path):
    rows = tidy_benzene_rows()
    rows[1]["bonds"] = "broken"
    write_csv(tmp_path / "graphxai_benzene.csv.gz", rows)
    result = verify_dataset("benzene", root=tmp_path)
    assert (result.num_checked, result.num_unreadable) == (3, 1)
    assert verify_dataset("benzene", root=tmp_path, every=2).num_checked == 2


def test_raw_mutagenicity_has_nothing_to_compare_with(tmp_path):
    tu_folder(tmp_path)
    result = verify_dataset("mutagenicity", root=tmp_path)
    assert result.layout == "published"
    assert result.compared.startswith("nothing")
