"""Random calls, files and command lines: each is fine, or refused by name."""

from __future__ import annotations

import pytest

pytest.importorskip("rdkit", reason="needs RDKit")


def test_five_hundred_cases_are_fine_or_named() -> None:
    from fuzz import KINDS, fuzz

    found = fuzz(500, seed=0)
    assert found["failures"] == []
    assert found["fine"] + found["named"] == 500
    assert min(found["fine"], found["named"]) > 100
    assert all(found["kinds"][kind.__name__] for kind in KINDS)


def test_a_case_does_not_depend_on_those_before() -> None:
    from fuzz import outcome
    from fuzz_material import quiet_world

    with quiet_world() as world:
        forth = [outcome(case, 0, world) for case in range(40)]
        back = [outcome(case, 0, world) for case in reversed(range(40))]
    assert forth == back[::-1]


def test_raw_errors_and_wrong_numbers_are_noticed() -> None:
    from fuzz_material import Wrong, check_numbers, quiet_world

    with quiet_world() as world:
        out = world.known["gin"].explain(world.background)
        check_numbers(out)
        out.bond_score[0] = 2.0
        with pytest.raises(Wrong, match="above 1"):
            check_numbers(out)
        out.bond_score[0] = float("nan")
        with pytest.raises(Wrong, match="not finite"):
            check_numbers(out)
