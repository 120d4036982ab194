"""The registry: every dataset has a family and files that can be fetched; facts can travel."""

import pickle

import pytest

from nicegnn.errors import ConfigError
from nicegnn_lab.datasets import DATASETS, FAMILIES
from nicegnn_lab.datasets.registry import SHA256, facts_of, known_checksums


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_remote_files_are_addressed_and_placed_where_a_reader_looks(family):
    candidates = [c for layout in family.layouts for c in layout.candidates]
    placed = {file.path for file in family.remote}
    assert any(set(candidate.values()) <= placed for candidate in candidates)
    for file in family.remote:
        assert all(url.startswith("https://") for url in file.urls)
        assert file.sha256 == SHA256.get(file.path)


def test_every_family_has_a_dataset_and_every_dataset_a_family():
    assert {facts.family for facts in DATASETS.values()} == set(FAMILIES)


def test_only_the_tables_like_bxaic_are_a_stand_in():
    found = [
        (f.name, item.name) for f in FAMILIES.values() for item in f.layouts if item.is_stand_in
    ]
    assert found == [("bxaic", "tidy")]


def test_checksums_are_known_by_file_name_in_every_place():
    assert all(len(value) == 64 for value in SHA256.values())
    assert known_checksums("AC_smiles.csv") == known_checksums("logic7_smiles.csv")
    assert len(known_checksums("true_raw_attribution_datadicts.npz")) == 3


def test_facts_travel_to_other_processes():
    assert pickle.loads(pickle.dumps(DATASETS)).keys() == DATASETS.keys()


def test_unknown_names_list_the_known_ones():
    with pytest.raises(ConfigError, match=r"`name` must be one of .*'rings-max'.*got 'benzol'"):
        facts_of("benzol")
