"""The registry: every dataset has a family and files that can be fetched; facts can travel."""

import pytest

from nicegnn.errors import ConfigError
from nicegnn_lab.datasets.registry import DATASETS, FAMILIES, SHA256, facts_of


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_remote_files_are_addressed_and_placed_where_a_reader_looks(family):
    placed = {file.path for file in family.remote}
    assert not placed or placed in [set(layout.files.values()) for layout in family.layouts]
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


def test_unknown_names_list_the_known_ones():
    with pytest.raises(ConfigError, match=r"`name` must be one of .*'rings-max'.*got 'benzol'"):
        facts_of("benzol")
