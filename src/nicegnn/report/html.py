"""Parts of the page as HTML text: tables that sort and tell their sources, claims, lists."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from nicegnn.report.finding import Claim, Finding, Verdict
from nicegnn.tables.table import Table

SHORT = 12  # parts of a claim that are shown without a click
#: A number, and what may follow it: a spread, the paper's value, the other end of an interval.
_NUMBER = re.compile(
    r"[<>≤≥~]?\s*[+\-−–]?(\d[\d,]*\.?\d*|\.\d+)(e[+-]?\d+)?\s*(%.*|±.*|\(.*|to .*|)"
)
_MISSING = re.compile(r"\s*([-–](\s|$)|nan\b|$)")
_CLASS = {
    Verdict.HOLDS: "holds",
    Verdict.PARTLY: "partly",
    Verdict.FAILS: "fails",
    Verdict.MISSING: "missing",
}

#: Finds the source of the number in a row and column of a table, as its place in a list.
FindSource = Callable[[Table, int, int], int | None]


def table_html(
    table: Table, find: FindSource = lambda *_: None, *, identity: str = "", wide: bool = False
) -> str:
    """Returns a table that a click on a heading sorts.

    Args:
        find: tells where the number of a cell comes from.
        identity: ``id`` of the table element.
        wide: whether long texts may take several lines.
    """
    numeric = [_is_numeric([row[c] for row in table.rows]) for c in range(len(table.columns))]
    kind = ["" if is_number else ' class="text"' for is_number in numeric]
    head = "".join(
        f'<th scope="col"{kind[c]}>{escape(name)}</th>' for c, name in enumerate(table.columns)
    )
    lines = []
    for r, row in enumerate(table.rows):
        cells = []
        for c, text in enumerate(row):
            names = [] if numeric[c] else ["text"]
            names += ["best"] if (r, c) in table.best else []
            names += ["wrap"] if wide and len(text) > 40 else []
            source = find(table, r, c) if _NUMBER.fullmatch(text) else None
            attributes = f' class="{" ".join(names)}"' if names else ""
            attributes += "" if source is None else f' data-source="{source}"'
            cells.append(f"<td{attributes}>{escape(text)}</td>")
        lines.append(f"<tr>{''.join(cells)}</tr>")
    name = f' id="{escape(identity)}"' if identity else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.title)}">'
        f'<table class="sortable"{name}><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def table_figure(table: Table, find: FindSource = lambda *_: None) -> str:
    """Returns a table with its title, notes and an anchor, ``#table-NAME``."""
    notes = "".join(f"<p>{escape(note)}</p>" for note in table.notes)
    return (
        f'<figure id="table-{escape(table.name)}"><h3>{escape(table.title)}</h3>'
        f'{table_html(table, find)}<div class="notes">{notes}</div></figure>'
    )


def claims_html(
    found: Sequence[tuple[Claim, Finding]],
    links: Callable[[Claim], str],
    sources: Callable[[Finding], str],
) -> str:
    """Returns all claims with their verdicts, those of the paper first, and a count of verdicts.

    Args:
        links: says where to look for the numbers of a claim, as HTML.
        sources: names the files behind a finding, as HTML.
    """
    parts = []
    for is_ours, title in ((False, "Claims of the paper"), (True, "Checks of our own")):
        chosen = [pair for pair in found if pair[0].is_ours == is_ours]
        count = ", ".join(
            f"{verdict}: {sum(finding.verdict == verdict for _, finding in chosen)}"
            for verdict in Verdict
        )
        items = "".join(_claim(claim, finding, links, sources) for claim, finding in chosen)
        parts.append(f'<h3>{title}</h3><p class="note">{count}.</p><ul class="claims">{items}</ul>')
    note = (
        "A verdict follows from the statements under it: all, some or none of them are true. A "
        "claim whose datasets or rivals are not all measured yet holds in part at most."
    )
    return f"<p>{note}</p>{''.join(parts)}"


def _claim(
    claim: Claim,
    finding: Finding,
    links: Callable[[Claim], str],
    sources: Callable[[Finding], str],
) -> str:
    verdict = finding.verdict
    lines = [
        f'<li class="{_CLASS[verdict]}" id="claim-{escape(claim.name)}"><p class="verdict">'
        f'<span class="badge">{verdict}</span><b>{escape(claim.statement)}</b> '
        f'<span class="note">({escape(claim.place)})</span></p>'
    ]
    if verdict is Verdict.MISSING:
        lines.append(
            f'<p class="note">{escape(finding.scope)} Run <code>{escape(claim.command)}</code>.</p>'
        )
        return "".join([*lines, "</li>"])
    items = "".join(
        f'<li class="{"yes" if part.holds else "no"}">{escape(part.text)}</li>'
        for part in finding.parts
    )
    shown = f'<ul class="parts">{items}</ul>'
    if len(finding.parts) > SHORT:
        holding = sum(part.holds for part in finding.parts)
        count = f"{holding} of {len(finding.parts)} statements hold"
        shown = f"<details><summary>{count}</summary>{shown}</details>"
    lines.append(f'{shown}<p class="note">Measured on {escape(finding.scope)}. {links(claim)}</p>')
    if finding.missing:
        lines.append(f'<p class="note">Not measured yet: {escape(finding.missing)}.</p>')
    behind = sources(finding)
    if finding.table is not None and finding.table.rows:
        behind = table_html(finding.table) + behind
    if behind:
        lines.append(f"<details><summary>Numbers behind it</summary>{behind}</details>")
    return "".join([*lines, "</li>"])


def tiles_html(values: Sequence[tuple[str, str]]) -> str:
    """Returns key numbers: (number, what it is)."""
    inner = "".join(
        f'<div class="tile"><b>{escape(number)}</b><span>{escape(what)}</span></div>'
        for number, what in values
    )
    return f'<div class="tiles">{inner}</div>'


def facts_html(facts: Mapping[str, str]) -> str:
    """Returns names with their values as a table."""
    rows = "".join(
        f'<tr><td class="text">{escape(name)}</td><td class="text wrap">{escape(text)}</td></tr>'
        for name, text in facts.items()
    )
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="What was run"><table><tbody>'
        f"{rows}</tbody></table></div>"
    )


def data_html(name: str, content: Any) -> str:
    """Returns plain values for scripts; nothing in them can end the element early."""
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    text = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return f'<script type="application/json" id="data-{escape(name)}">{text}</script>'


def _is_numeric(texts: Sequence[str]) -> bool:
    known = [text for text in texts if not _MISSING.match(text)]
    return bool(known) and sum(bool(_NUMBER.fullmatch(text)) for text in known) > len(known) / 2
