"""The small model, once for all tests of screening."""

from __future__ import annotations

from pathlib import Path

import pytest

from nicegnn.pretrained import Pretrained
from nicegnn.screening.learning import Learned
from tests.screening.small_screen import trained


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Learned, Pretrained]:
    return trained(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def subject(small: tuple[Learned, Pretrained]) -> Pretrained:
    return small[1]


@pytest.fixture(scope="session")
def model_file(small: tuple[Learned, Pretrained]) -> Path:
    return small[0].files[0]
