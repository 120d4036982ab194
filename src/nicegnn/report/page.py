"""The report: one HTML page that holds all it needs and opens without a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from nicegnn.errors import ConfigError
from nicegnn.report import manifest
from nicegnn.report.claims import judge_claims
from nicegnn.report.evidence import read_evidence
from nicegnn.report.figures import Picture, read_pictures
from nicegnn.report.finding import Claim, Finding
from nicegnn.report.gallery import GalleryConfig, make_gallery
from nicegnn.report.html import (
    claims_html,
    data_html,
    facts_html,
    table_figure,
    table_html,
    tiles_html,
)
from nicegnn.report.parts import Parts
from nicegnn.report.results import about_protocol, result_data
from nicegnn.report.tables import SourceFinder, experiment_tables, quality_tables
from nicegnn.store import write_text
from nicegnn.tables.table import Table

SCRIPTS = ("sort.js", "results.js", "sketch.js", "gallery.js")
TITLE = "NICE: what the measurements say"


@dataclass(frozen=True)
class ReportConfig:
    """What the report is made from."""

    rows: Path  # folder of a benchmark
    experiments: Path | None = None  # folder of experiments
    figures: Path | None = None  # folder of pictures
    target: str | None = None  # target model that is judged and shown; none for gin
    gallery: GalleryConfig = field(default_factory=GalleryConfig)  # which molecules are shown

    def __post_init__(self) -> None:
        for name in ("rows", "experiments", "figures"):
            folder = getattr(self, name)
            if folder is not None and not Path(folder).is_dir():
                raise ConfigError(f"`{name}` must be a folder that exists (got {str(folder)!r}).")


@dataclass(frozen=True)
class Report:
    """A finished page.

    Attributes:
        html: the page.
        claims: every claim with what was found about it.
        problems: what could not be shown, by dataset or experiment.
    """

    html: str
    claims: Sequence[tuple[Claim, Finding]]
    problems: Mapping[str, str]

    @property
    def num_bytes(self) -> int:
        return len(self.html.encode())

    def save(self, path: str | Path) -> Path:
        """Writes the page, whole or not at all."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, self.html)
        return path


def make_report(
    config: ReportConfig,
    *,
    tables: Sequence[Table] | None = None,
    parts: Parts | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """Returns the report of a benchmark.

    Args:
        tables: of explanation quality; by default those of `quality_tables`.
        parts: gives the explained graphs; by default as `load_dataset` finds them.
        say: is told what happens, step by step.
    """
    parts = parts or Parts()
    say(f"Reading rows in {config.rows} ...")
    evidence = read_evidence(config.rows, config.experiments, target=config.target, parts=parts)
    say(f"Judging claims by {len(evidence.sources)} cells ...")
    claims = judge_claims(evidence)
    say("Making tables ...")
    results = result_data(evidence)
    results["protocolTitles"] = [about_protocol(name) for name in results["protocols"]]
    quality = quality_tables(evidence) if tables is None else list(tables)
    measured = experiment_tables(config.experiments, list(evidence.experiments))
    pictures = read_pictures(config.figures)
    gallery = make_gallery(evidence, config.rows, parts, config.gallery, say)
    finder = SourceFinder(results["sources"], evidence.target)
    html = Template(_asset("page.html")).substitute(
        title=escape(TITLE),
        lead=escape(manifest.lead(evidence)),
        style=_asset("report.css"),
        tiles=tiles_html(manifest.tiles(evidence)),
        claims=claims_html(claims, lambda claim: _links(claim, measured, pictures), _behind),
        tables=_tables(quality, measured, finder, config.experiments)
        + "".join(
            f'<p class="note">{escape(name)} is left out: {escape(problem)}</p>'
            for name, problem in evidence.problems.items()
        ),
        figures=_figures(pictures),
        sources=_sources(results["sources"]),
        manifest=facts_html(manifest.facts(evidence, config.rows))
        + "<h3>Explainers</h3>"
        + table_html(manifest.explainer_table(evidence), wide=True),
        data="\n".join(_data(results, gallery)),
        script="\n".join(_asset(name) for name in SCRIPTS),
    )
    unseen = {name: some["problem"] for name, some in gallery.items() if "problem" in some}
    return Report(html, claims, {**evidence.problems, **parts.problems, **unseen})


def _asset(name: str) -> str:
    return (files("nicegnn.report") / "assets" / name).read_text(encoding="utf-8")


def _data(results: Mapping[str, Any], gallery: Mapping[str, Any]) -> list[str]:
    """Datasets of the gallery stand apart, so that the browser reads only what is looked at."""
    parts = [data_html("results", results), data_html("gallery", list(gallery))]
    return parts + [data_html(f"gallery-{name}", content) for name, content in gallery.items()]


def _tables(
    quality: Sequence[Table],
    measured: Mapping[str, Sequence[Table]],
    finder: SourceFinder,
    folder: Path | None,
) -> str:
    parts = [table_figure(table, finder) for table in quality]
    for name, tables in measured.items():
        parts += [table_figure(table) for table in tables]
        used = sorted(path.name for path in (Path(folder or "") / name).glob("*.parquet"))
        listed = " ".join(f"<code>{escape(file)}</code>" for file in used)
        parts.append(
            f"<details><summary>Rows of {escape(name)}: {len(used)} file(s)</summary>"
            f"<p>{listed}</p></details>"
        )
    if folder is None:
        parts.append(
            '<p class="note">No experiments were given; compute them with <code>nicegnn experiment'
            "</code> and name their folder with <code>--experiments</code>.</p>"
        )
    return "".join(parts)


def _figures(pictures: Sequence[Picture]) -> str:
    if not pictures:
        return (
            '<p class="note">No figures were given; name a folder of PNG or SVG files with '
            "<code>--figures</code>.</p>"
        )
    return f'<div class="pictures">{"".join(picture.to_html() for picture in pictures)}</div>'


def _sources(groups: Sequence[dict[str, Any]]) -> str:
    table = table_html(manifest.source_table(groups), identity="source-table", wide=True)
    return (
        '<p><label>Only lines with <input id="source-filter" type="search" '
        f'placeholder="benzene nice"></label></p>{table}'
    )


def _links(
    claim: Claim, measured: Mapping[str, Sequence[Table]], pictures: Sequence[Picture]
) -> str:
    """Says where the numbers of a claim are shown."""
    metric, slash, protocol = claim.shown.rpartition("/")
    if slash:
        return (
            f'See <a href="#results" data-metric="{escape(metric)}" '
            f'data-protocol="{escape(protocol)}">results</a>.'
        )
    links = [
        f'<a href="#table-{escape(table.name)}">{escape(table.title)}</a>'
        for table in measured.get(claim.shown, ())
    ]
    word = claim.shown.partition("_")[0]
    links += [
        f'<a href="#figure-{escape(picture.name)}">{escape(picture.title)}</a>'
        for picture in pictures
        if word and word in picture.name
    ]
    return f"See {', '.join(links)}." if links else ""


def _behind(finding: Finding) -> str:
    """Names the rows behind a finding; their keys are among the sources."""
    by_dataset: dict[str, list[str]] = {}
    for dataset, method in sorted(finding.sources):
        by_dataset.setdefault(dataset, []).append(method)
    if not by_dataset:
        return ""
    text = "; ".join(f"{name}: {', '.join(methods)}" for name, methods in by_dataset.items())
    return f'<p class="note">From rows of {escape(text)}. Keys: <a href="#sources">sources</a>.</p>'
