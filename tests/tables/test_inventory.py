"""Lists of what there is: explainers; targets are tested where they are trained."""

from __future__ import annotations

from nicegnn.rivals.registry import EXPLAINERS
from nicegnn.tables.inventory import explainer_table


def test_every_explainer_has_a_line() -> None:
    table = explainer_table()
    assert [row[0] for row in table.rows] == [f"`{name}`" for name in EXPLAINERS]
    lines = table.to_markdown().splitlines()
    assert lines[0] == "| name | what it is | cost | mechanisms | group | after |"
    assert lines[1] == "|" + " --- |" * 6
    random = next(row for row in table.rows if row[0] == "`random`")
    assert list(random[2:]) == ["none", "-", "reference", "-"]
