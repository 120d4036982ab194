"""The report: one HTML page that holds all it needs and opens without a network."""

from __future__ import annotations

import base64
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from nicegnn.errors import ConfigError, NicegnnError, StoreError
from nicegnn.store import write_text
from nicegnn_lab.bench.measure import GALLERY_METRICS
from nicegnn_lab.bench.rows import finished_cells
from nicegnn_lab.figures.panels import read_caption
from nicegnn_lab.figures.registry import FIGURES
from nicegnn_lab.metrics import PROTOCOLS
from nicegnn_lab.paper.claims import Claim, Finding, Verdict, judge_claims
from nicegnn_lab.paper.evidence import Evidence, read_evidence
from nicegnn_lab.report.gallery import GalleryConfig, make_gallery
from nicegnn_lab.report.rendering import render
from nicegnn_lab.report.result_data import (
    SourceFinder,
    explainer_table,
    facts_of_run,
    find_sources,
    result_data,
    source_table,
)
from nicegnn_lab.tables.comparison import comparison_table, mechanism_table
from nicegnn_lab.tables.quality import TABLE_METRICS, all_quality_tables
from nicegnn_lab.tables.ranks import ceiling_table, criterion_table, rank_table
from nicegnn_lab.tables.registry import TABLES, Sources
from nicegnn_lab.tables.table import MISSING, Table

TITLE = "NICE: what the measurements say"
#: Columns of the first screen: heading in the table of ranks, and here.
HEADLINE = {
    "method": "method",
    "agreement": "by truth",
    "fidelity area": "by fidelity",
    "mean rank": "together",
    "AUC %": "AUC",
    "fidelity area %": "kept",
}
NUM_BEST = 5  # rivals on the first screen
PICTURES = {".png": "image/png", ".svg": "image/svg+xml"}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReportConfig:
    """What the report is made from."""

    rows: Path  # folder of a benchmark
    studies: Path | None = None  # folder of studies
    figures: Path | None = None  # folder of pictures
    target: str | None = None  # target model that is judged and shown; none for gin
    gallery: GalleryConfig = field(default_factory=GalleryConfig)  # which molecules are shown

    def __post_init__(self) -> None:
        for name in ("rows", "studies", "figures"):
            folder = getattr(self, name)
            if folder is not None and not Path(folder).is_dir():
                raise ConfigError(f"`{name}` must be a folder that exists (got {str(folder)!r}).")


@dataclass(frozen=True)
class Report:
    """A finished page."""

    html: str
    claims: Sequence[tuple[Claim, Finding]]
    problems: Mapping[str, str]  # what could not be shown, by dataset or study

    @property
    def num_bytes(self) -> int:
        return len(self.html.encode())

    def save(self, path: str | Path) -> Path:
        """Writes the page, whole or not at all."""
        write_text(path, self.html)
        return Path(path)


@dataclass(frozen=True)
class Picture:
    """One picture of a folder."""

    name: str  # file name without ending, the anchor on the page
    caption: str  # what the file says about itself, or nothing
    uri: str  # the file itself as a ``data:`` address


def make_report(config: ReportConfig, *, say: Callable[[str], None] = lambda _: None) -> Report:
    """Returns the report of a benchmark, made from rows alone; `say` is told each step."""
    say(f"Reading rows in {config.rows} ...")
    evidence = read_evidence(
        config.rows, config.studies, target=config.target, metrics=GALLERY_METRICS
    )
    cells = list(finished_cells(config.rows).values())
    say(f"Judging claims by {len(cells)} cells ...")
    claims = judge_claims(evidence)
    say("Making tables ...")
    sources = find_sources(evidence, cells)
    tables = bench_tables(evidence)
    studies = study_tables(config, evidence)
    pictures = [(picture, figure_title(picture)) for picture in read_pictures(config.figures)]
    say("Drawing molecules ...")
    gallery = make_gallery(evidence, config.gallery)
    html = render(
        "report.html",
        title=TITLE,
        target=evidence.target,
        headline=headline(evidence),
        claims=[(claim, finding, _links(claim, studies, pictures)) for claim, finding in claims],
        verdicts=list(Verdict),
        tables=tables,
        find=SourceFinder(sources, evidence.target),
        studies=studies,
        pictures=pictures,
        problems=evidence.problems,
        sources=source_table(sources),
        facts=facts_of_run(evidence, cells),
        explainers=explainer_table(evidence),
        data={
            "results": result_data(evidence, sources),
            "gallery": list(gallery),
            **{f"gallery-{name}": content for name, content in gallery.items()},
        },
    )
    unseen = {name: some["problem"] for name, some in gallery.items() if "problem" in some}
    return Report(html, claims, {**evidence.problems, **unseen})


def headline(evidence: Evidence) -> Table:
    """Returns the best methods, and all of ours, with ranks by truth and by fidelity."""
    try:
        table = rank_table(evidence.rows, evidence.target)
    except StoreError as error:  # the rows lack a metric that is ranked
        log.info("Nothing is ranked: %s", error)
        return Table("headline", "", [*HEADLINE.values()], [])
    ranked = [row for row in table.rows if row[-1] != MISSING]
    best = [row for row in ranked if row[1] != "ours"][:NUM_BEST]
    shown = [row for row in ranked if row[1] == "ours" or row in best]
    places = [list(table.columns).index(name) for name in HEADLINE]
    num = evidence.rows.loc[evidence.rows["target"] == evidence.target, "dataset"].nunique()
    return Table(
        name="headline",
        title=f"Best of {len(ranked)} methods on {num} dataset(s), target {evidence.target}",
        columns=[*HEADLINE.values()],
        rows=[[row[place] for place in places] for row in shown],
        notes=[
            "Mean ranks, 1 is best: by agreement with the truth (F1, recall, AUC), by fidelity "
            "(predictions that the best 10 to 90% of bonds keep, the others masked or corrupted), "
            "and by the four together. The last columns are means over datasets in percent. What "
            "NICE loses without a bond under masking is what occlusion measures, in log-odds "
            "instead of logits; and NICE's order of bonds is trained on the quantity that fidelity "
            "measures. So look at both ranks."
        ],
    )


def bench_tables(evidence: Evidence) -> list[Table]:
    """Returns the tables of explanation quality on the judged target, as far as rows hold them."""
    rows, target = evidence.rows, evidence.target
    rows = rows[(rows["target"] == target) & rows["metric"].isin(TABLE_METRICS)]
    there = set(rows["protocol"].astype(str))
    protocols = [name for name in PROTOCOLS if name in there]
    found = all_quality_tables(rows, protocols=protocols, target=target)
    for make in (rank_table, ceiling_table, comparison_table, mechanism_table, criterion_table):
        try:
            table = make(rows, target=target)
        except NicegnnError as error:  # the rows do not hold what it compares
            log.info("%s is left out: %s", make.__name__, error)
            continue
        found += [table] if table.rows else []
    return found


def study_tables(config: ReportConfig, evidence: Evidence) -> dict[str, list[Table]]:
    """Returns the tables of studies that there are rows of, by the name of their artefact.

    Tables of one file share a name; on the page each gets its own.
    """
    sources = Sources(config.rows, config.studies or Path())
    known = {"bench", *evidence.studies}
    found: dict[str, list[Table]] = {}
    for name, artefact in TABLES.items():
        if artefact.is_in_all and artefact.reads != ("bench",) and known.issuperset(artefact.reads):
            try:
                made = artefact.make(sources)
            except NicegnnError as error:
                log.warning("Tables of %s are left out: %s", name, error)
                continue
            seen: Counter[str] = Counter()
            found[name] = []
            for table in made:
                number = seen[table.name]
                own = replace(table, name=f"{table.name}-{number}") if number else table
                found[name].append(own)
                seen[table.name] += 1
    return found


def read_pictures(folder: str | Path | None) -> list[Picture]:
    """Returns all PNG and SVG files of a folder; of two kinds of one picture the smaller file."""
    found: dict[str, Path] = {}
    for path in () if folder is None else sorted(Path(folder).rglob("*")):
        if path.suffix.lower() in PICTURES and path.is_file():
            name = "-".join(path.relative_to(folder or "").with_suffix("").parts)
            known = found.get(name, path)
            found[name] = path if path.stat().st_size < known.stat().st_size else known
    pictures = []
    for name, path in found.items():
        kind, content = path.suffix.lower(), base64.b64encode(path.read_bytes()).decode()
        caption = read_caption(path) if kind == ".png" else ""
        pictures.append(Picture(name, caption, f"data:{PICTURES[kind]};base64,{content}"))
    return pictures


def figure_title(picture: Picture) -> str:
    """Returns what a picture shows: the title of the figure that its name begins with."""
    for name in sorted(FIGURES, key=len, reverse=True):
        if picture.name == name or picture.name.startswith(f"{name}-"):
            rest = picture.name[len(name) + 1 :]
            return f"{FIGURES[name].title}: {rest}" if rest else FIGURES[name].title
    return picture.name.replace("-", " ").replace("_", " ").capitalize()


def _links(
    claim: Claim,
    studies: Mapping[str, Sequence[Table]],
    pictures: Sequence[tuple[Picture, str]],
) -> list[tuple[str, str]]:
    """Returns anchor and title of what shows the numbers of a claim."""
    if claim.study == "bench":
        return [("results", "results")]
    of_study = [name for name in studies if TABLES[name].reads == (claim.study,)]
    tables = [table for name in of_study for table in studies[name]]
    shown = [(f"table-{table.name}", table.title) for table in tables]
    wanted = {name for name, artefact in FIGURES.items() if claim.study in artefact.reads}
    return shown + [(f"figure-{p.name}", title) for p, title in pictures if p.name in wanted]
