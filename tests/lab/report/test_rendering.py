"""Templates: text is escaped, data cannot end their element, numbers stand apart from words."""

from __future__ import annotations

import pytest
from jinja2 import UndefinedError

from nicegnn_lab.report.rendering import _environment, numeric_columns, render
from nicegnn_lab.tables.table import Table


def made(source: str, **values: object) -> str:
    return _environment().from_string(source).render(**values)


def test_text_is_escaped_and_data_cannot_end_their_element() -> None:
    assert made("{{ x }}", x="<b> & co") == "&lt;b&gt; &amp; co"
    text = made("<script>{{ x | tojson }}</script>", x={"a": "</script><script>alert(1)"})
    assert text.count("</script>") == 1
    assert '"a":' in text
    with pytest.raises(ValueError, match="JSON"):
        made("{{ x | tojson }}", x=float("nan"))


def test_a_value_that_is_missing_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="lead"):
        render("demo.html", title="t", key_numbers=[])


def test_headings_of_numbers_and_of_words_stand_apart() -> None:
    rows = [["nice", "90.1 ± 0.2 (86.6)", "16 passes", "8147fe56"], ["b", "-", "1 pass", "a5e7"]]
    table = Table("t", "A <title>", ["name", "AUC", "cost", "key"], rows, frozenset({(0, 1)}))
    assert numeric_columns(table) == [False, True, False, False]
    source = '{% from "macros.html" import table_html %}{{ table_html(table, find, "me") }}'
    text = made(source, table=table, find=lambda *place: 7)
    assert text.count('<th scope="col" class="text">') == 3
    assert '<th scope="col">AUC</th>' in text
    assert '<td class="best" data-source="7">90.1 ± 0.2 (86.6)</td>' in text
    assert text.count("data-source") == 1  # words and missing values have no source
    assert 'aria-label="A &lt;title&gt;"' in text
