"""Answers as HTML: all text that came from a visitor is escaped."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from itertools import islice

from nicegnn.explain.explanation import ADVICE, Explanation
from nicegnn.explain.words import paragraph
from nicegnn.page.answer import SHARES, Answer, draw_answer
from nicegnn.pretrained.model_file import ModelCard
from nicegnn.screening.explaining import SCHEMAS
from nicegnn.screening.gallery import prediction_words
from nicegnn.screening.shards import Table, csv_text, rows_of

_NAMED = 5  # bonds in the list of the best
_WIDE, _HIGH, _LEFT, _LOW, _RIGHT = 600, 190, 48, 34, 20  # chart and its margins
_COLOURS = {"masked": "#0072b2", "noised": "#d55e00"}
_MOST_WORDS = 600  # letters of an error
_REJECTED = 50  # molecules that are listed with the reason; the download has all


def problem(text: str) -> str:
    """Returns a box that says what went wrong."""
    short = text if len(text) <= _MOST_WORDS else f"{text[:_MOST_WORDS]} ..."
    return f"<div class='n-problem' role='alert'>{escape(short)}</div>"


def about(card: ModelCard) -> str:
    """Returns what a model predicts and how well, and what to know about it."""
    note = f"<br>{escape(card.note)}" if card.note else ""
    return f"<p class='n-about'>{escape(card.in_words())}{note}</p>"


def headline(answer: Answer) -> str:
    """Returns the prediction in words."""
    unit = f" {answer.card.unit}" if answer.card.unit else ""
    said = escape(prediction_words(answer.molecule) + unit)
    who = escape(f"{answer.record.id}: {answer.record.smiles}")
    question = escape(answer.card.question or answer.card.name)
    return (
        f"<div class='n-head'><p class='n-who'>{who}</p>"
        f"<p class='n-question'>{question}</p><p class='n-said'>{said}</p></div>"
    )


def picture(answer: Answer, place: int) -> str:
    """Returns the coloured molecule, with the bonds that are kept at a share outlined."""
    kept = answer.kept.number[place]
    outlined = kept if kept < len(answer.bonds) else 0  # an outline of all bonds tells nothing
    return f"<div class='n-picture'>{answer.draw(outlined).svg}</div>"


def effect(answer: Answer, place: int) -> str:
    """Returns what is predicted with only the best bonds, in words and as a chart."""
    kept = answer.kept
    if not answer.bonds:
        return "<p>The molecule has no bonds, so there is nothing to leave out.</p>"
    shown = "{:.3g}" if answer.card.task == "regression" else "{:.0%}"
    masked, noised, clean = (
        f"<b>{shown.format(value)}</b>"
        for value in (kept.masked[place], kept.noised[place], kept.clean)
    )
    number, total = kept.number[place], len(answer.bonds)
    what = (
        "Value"
        if answer.card.task == "regression"
        else f"Probability of “{escape(answer.card.class_name(int(answer.found.target)))}”"
    )
    words = (
        f"{what} with only the best {number} of {total} bonds: {masked} if the others send "
        f"nothing (masked), {noised} if they send noise. With all bonds: {clean}."
    )
    return f"<p class='n-effect'>{words}</p>{_chart(answer, place)}"


def _chart(answer: Answer, place: int) -> str:
    """Returns a chart of the prediction by the share of bonds that are kept."""
    kept, is_value = answer.kept, answer.card.task == "regression"
    values = (*kept.masked, *kept.noised, kept.clean)
    low, top = (min(values), max(values)) if is_value else (0.0, 1.0)
    span = (top - low) or 1.0

    def x(share: float) -> float:
        return _LEFT + share * (_WIDE - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return 10 + (top - value) / span * (_HIGH - _LOW - 10)

    parts = []
    for level in (low, low + span / 2, low + span):
        text = f"{level:.2g}" if is_value else f"{level:.0%}"
        parts.append(
            f"<path d='M {_LEFT},{y(level):.1f} H {_WIDE - _RIGHT}' stroke='currentColor' "
            f"stroke-opacity='.15'/><text x='{_LEFT - 6}' y='{y(level) + 4:.1f}' "
            f"text-anchor='end'>{text}</text>"
        )
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(
            f"<text x='{x(share):.1f}' y='{_HIGH - 16}' text-anchor='middle'>{share:.0%}</text>"
        )
    middle = (_LEFT + _WIDE - _RIGHT) / 2
    parts.append(f"<text x='{middle}' y='{_HIGH - 2}' text-anchor='middle'>bonds kept</text>")
    here = x(SHARES[place])
    parts.append(
        f"<path d='M {here:.1f},10 V {_HIGH - _LOW}' stroke='currentColor' stroke-dasharray='3,3' "
        "stroke-opacity='.6'/>"
    )
    for name, colour in _COLOURS.items():
        line = [*zip(map(x, SHARES), map(y, getattr(kept, name)), strict=True)]
        path = " L ".join(f"{u:.1f},{v:.1f}" for u, v in line)
        parts.append(f"<path d='M {path}' fill='none' stroke='{colour}' stroke-width='2.5'/>")
        u, v = line[place]
        parts.append(f"<circle cx='{u:.1f}' cy='{v:.1f}' r='5' fill='{colour}'/>")
    key = "".join(
        f"<span><i style='background:{colour}'></i>others {name}</span>"
        for name, colour in _COLOURS.items()
    )
    label = "Prediction by the share of bonds that are kept"
    return (
        f"<svg class='n-chart' viewBox='0 0 {_WIDE} {_HIGH}' role='img' aria-label='{label}' "
        f"fill='currentColor' font-size='12'>{''.join(parts)}</svg><p class='n-key'>{key}</p>"
    )


def words(answer: Answer) -> str:
    """Returns the best bonds and atoms by name, observations and advice, and downloads."""
    rows = "".join(
        f"<tr><td>{escape(one['name'])}</td><td>{escape(one['type'])}</td>"
        f"<td>{escape(one['groups'])}</td><td>{one['score']:.2f}</td></tr>"
        for one in answer.bonds[:_NAMED]
    )
    table = (
        "<table class='n-table'><thead><tr><th>bond</th><th>type</th><th>where</th>"
        f"<th>score</th></tr></thead><tbody>{rows}</tbody></table>"
        if rows
        else ""
    )
    flags = answer.found.status.flags[0]
    care = [f"Take care: {advice}" for flag, advice in ADVICE.items() if flag in flags]
    said = "".join(f"<p class='n-care'>{escape(text)}</p>" for text in care)
    notes = "".join(f"<p>{escape(text)}</p>" for text in answer.found.status.notes)
    summary = f"<p class='n-summary'>{escape(_summary(answer))}</p>"
    files = _link("picture (SVG)", "explained.svg", "image/svg+xml", answer.draw().svg)
    files += csv_link("bonds (CSV)", "bonds.csv", answer.tables, "bonds")
    files += csv_link("atoms (CSV)", "atoms.csv", answer.tables, "atoms")
    return f"{said}{notes}{summary}{table}<p class='n-links'>Download: {files}</p>"


def _summary(answer: Answer) -> str:
    """Returns what was found in words, its class by name."""
    text = " ".join(paragraph(answer.found))
    number = int(answer.found.target)
    name = answer.card.class_name(number)
    return text.replace(f"class {number} ", f"class {number} ({name}) ", 1)


def others(answer: Answer, names: Sequence[str], own: str) -> str:
    """Returns the pictures of methods side by side, the page's own first."""
    cells = [_cell(own, answer.found, answer.record.smiles)]
    for name in names:
        if name in answer.others:
            cells.append(_cell(name, answer.others[name], answer.record.smiles))
    return f"<div class='n-methods'>{''.join(cells)}</div>"


def _cell(name: str, found: Explanation | str, smiles: str) -> str:
    inner = problem(found) if isinstance(found, str) else draw_answer(found, smiles).svg
    name = escape(name)
    return f"<figure data-method='{name}'><figcaption>{name}</figcaption>{inner}</figure>"


def told(tables: dict[str, Table], note: str) -> str:
    """Returns how many molecules of a file were explained, with downloads."""
    explained, rejected = (len(tables[name]["row"]) for name in ("molecules", "rejects"))
    text = f"{explained} molecules explained, {rejected} rejected. {note}".strip()
    links = "".join(
        csv_link(f"{name} (CSV)", f"{name}.csv", tables, name)
        for name in ("molecules", "bonds", "atoms", "rejects")
        if tables[name]["row"]
    )
    care = "n-care" if rejected or note else "n-fine"
    said = f"<p class='{care}'>{escape(text)}</p><p class='n-links'>Download: {links}</p>"
    return said + (_rejects(tables["rejects"]) if rejected else "")


def _rejects(table: Table) -> str:
    """Returns the first rejected molecules, each with the reason."""
    rows = [
        f"<tr><td>{one['row']}</td><td>{escape(one['smiles'][:60])}</td>"
        f"<td>{escape(one['reason'][:_MOST_WORDS])}</td></tr>"
        for one in islice(rows_of(table), _REJECTED)
    ]
    return (
        f"<details class='n-rejects'><summary>Rejected: {len(table['row'])}</summary>"
        "<table class='n-table'><thead><tr><th>row</th><th>SMILES</th><th>reason</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></details>"
    )


def csv_link(text: str, file: str, tables: dict[str, Table], name: str) -> str:
    """Returns a link that downloads a table; the file is in the link itself."""
    return _link(text, file, "text/csv", csv_text(tables[name], SCHEMAS[name]))


def _link(text: str, file: str, kind: str, content: str) -> str:
    packed = base64.b64encode(content.encode()).decode()
    return f"<a download='{file}' href='data:{kind};base64,{packed}'>{text}</a>"
