"""Explanations for people: tables, words and pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from math import isnan
from typing import TYPE_CHECKING, Any, get_args

import torch
from torch import Tensor

from nicegnn.config import check_choice
from nicegnn.errors import ConfigError, NicegnnError
from nicegnn.explain.explanation import (
    ADVICE,
    PER_ATOM,
    PER_BOND,
    PER_GRAPH,
    Explanation,
    Flag,
    Kind,
    Value,
)
from nicegnn.explain.trust import ORDERS, Trust
from nicegnn.graph.case import Bonds, edge_slots, rank_within
from nicegnn.molecule.drawing import NAMES, draw_graph, legend_lines
from nicegnn.molecule.picture import (
    Palette,
    Picture,
    Ramp,
    find_palette,
    grid,
    make_ramp,
    stack,
    title_line,
)
from nicegnn.molecule.smiles import MoleculeError, matched_molecule

if TYPE_CHECKING:
    import pandas as pd
    from rdkit.Chem import Mol


_VALUES = {"score": "bond score", "big": "attribution", "gate": "gate"}  # names in legends
_NAMED = 3  # bonds that words name
_LARGE = 60  # nodes of a plain graph of which only reached bonds are drawn
_PICTURED = 6  # graphs that a notebook shows


@dataclass(frozen=True)
class Look:
    """How graphs are drawn; see `Explanation.draw`."""

    value: Value = "score"
    top: float | int | None = None
    size: tuple[int, int] = (340, 260)
    columns: int = 3
    most: int = 12
    palette: str | Palette = "score"
    signed: bool | None = None
    limit: float | None = None
    background: str | None = "#ffffff"

    def __post_init__(self) -> None:
        check_choice("value", self.value, get_args(Value))
        find_palette(self.palette)  # raises unless there is one
        is_count = type(self.top) is int and self.top > 0
        is_share = isinstance(self.top, float) and 0 < self.top <= 1
        if self.top is not None and not (is_count or is_share):
            raise ConfigError(
                f"`top` must be a share in (0, 1] or a positive number of bonds (got {self.top!r})."
            )
        for name in ("columns", "most"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise ConfigError(
                    f"`{name}` must be a whole number of at least 1 (got {getattr(self, name)!r})."
                )

    @property
    def names(self) -> tuple[str, str, str]:
        """What the legend calls scores of bonds, scores of atoms and outlined bonds."""
        best = NAMES[2]
        if self.top is not None:
            best = f"top {self.top:.0%}" if isinstance(self.top, float) else f"best {self.top}"
        return _VALUES[self.value], NAMES[1], best


def make_frame(out: Explanation, kind: Kind) -> pd.DataFrame:
    """Returns the table of bonds, atoms or graphs; see `Explanation.to_frame`."""
    check_choice("kind", kind, get_args(Kind))
    try:
        import pandas as pd
    except ImportError as error:
        raise NicegnnError(
            "Tables need pandas; install it with pip install 'nicegnn[bench]'."
        ) from error
    make = {"bonds": _bond_columns, "atoms": _atom_columns, "graphs": _graph_columns}[kind]
    return pd.DataFrame(make(out))


def _bond_columns(out: Explanation) -> dict[str, Any]:
    batch = out.bonds.batch
    ends = (out.bond_index - out.ptr[batch]).cpu()  # numbers within the graph, [2, M]
    score = out.bond_score.masked_fill(~out.bond_reached, -torch.inf)
    columns = _about_graphs(out, batch)
    columns["bond"] = _plain(edge_slots(batch, out.num_graphs))
    columns["atom_a"], columns["atom_b"] = _plain(ends[0]), _plain(ends[1])
    if out.smiles is not None:
        pairs = zip(batch.tolist(), *ends.tolist(), strict=True)
        columns |= _bond_chemistry(molecules(out), pairs)
    return columns | {
        "score": _plain(out.bond_score),
        "rank": _plain(rank_within(score, batch, out.num_graphs) + 1),
        "stderr": _plain(out.bond_stderr),
        "big": _plain(out.bond_big),
        "gate": _plain(out.bond_gate),
        "reached": _plain(out.bond_reached),
    }


def _bond_chemistry(
    mols: Sequence[Mol | None], pairs: Iterable[tuple[int, int, int]]
) -> dict[str, list[str | None]]:
    """Returns elements and type of each bond, none where the molecule is not known."""
    names: dict[str, list[str | None]] = {"element_a": [], "element_b": [], "bond_type": []}
    for graph, u, v in pairs:
        mol = mols[graph]
        found: tuple[str | None, ...] = (None, None, None)
        if mol is not None:
            kind = str(mol.GetBondBetweenAtoms(u, v).GetBondType()).lower()
            found = *(mol.GetAtomWithIdx(atom).GetSymbol() for atom in (u, v)), kind
        for column, text in zip(names.values(), found, strict=True):
            column.append(text)
    return names


def _atom_columns(out: Explanation) -> dict[str, Any]:
    if out.atom_score is None:
        raise ConfigError(
            "This explanation has no scores of atoms (`atom_score` is None). Ask the explainer for "
            "them, or take `to_frame('bonds')`."
        )
    sizes = out.ptr.diff()
    batch = torch.arange(out.num_graphs, device=sizes.device).repeat_interleave(sizes)
    atoms = edge_slots(batch, out.num_graphs)
    columns = _about_graphs(out, batch)
    columns["atom"] = _plain(atoms)
    if out.smiles is not None:
        mols = molecules(out)
        places = zip(batch.tolist(), atoms.tolist(), strict=True)
        columns["element"] = [
            None if (mol := mols[graph]) is None else mol.GetAtomWithIdx(atom).GetSymbol()
            for graph, atom in places
        ]
    columns["score"] = _plain(out.atom_score)
    columns["rank"] = _plain(rank_within(out.atom_score, batch, out.num_graphs) + 1)
    stderr = out.atom_stderr
    columns["stderr"] = _plain(
        torch.full_like(out.atom_score, torch.nan) if stderr is None else stderr
    )
    return columns


def _graph_columns(out: Explanation) -> dict[str, Any]:
    each = torch.arange(out.num_graphs)
    columns = _about_graphs(out, each)
    chosen = out.prediction.gather(1, out.target.view(-1, 1)).view(-1)
    if is_classification(out):
        columns["explained"] = _plain(out.target)
        columns["predicted"] = _plain(out.prediction.argmax(1))
        columns["probability"] = _plain(chosen.exp())  # of the explained class
    else:
        columns["explained"] = _plain(out.target)
        columns["prediction"] = _plain(chosen)
    for name in ("restored", "risk_corrupted", "risk_boundary", "completeness_gap"):
        columns[name] = _plain(getattr(out, name))
    if out.trust is not None:
        columns |= {name: _plain(value) for name, value in out.trust.columns().items()}
    columns["flags"] = [_flag_names(flag) for flag in out.status.flags]
    return columns


def _about_graphs(out: Explanation, batch: Tensor) -> dict[str, Any]:
    """Returns the first columns of every table: graph, its SMILES, its explained node."""
    batch = batch.cpu()
    columns: dict[str, Any] = {"graph": _plain(batch)}
    if out.smiles is not None:
        columns["smiles"] = [out.smiles[graph] for graph in batch.tolist()]
    if out.index is not None:
        columns["node"] = _plain(out.index.cpu()[batch])
    return columns


def _plain(value: Tensor) -> Any:
    return value.detach().cpu().numpy()


def molecules(out: Explanation) -> list[Mol | None]:
    """Returns the molecule of each graph, None where its SMILES is unknown or of another graph."""
    found: list[Mol | None] = []
    for part, smiles in zip(
        out.to_dense().split() if out.smiles else out.split(),
        out.smiles or ("",) * out.num_graphs,
        strict=True,
    ):
        try:
            mol = matched_molecule(smiles, part.bond_index, int(part.ptr[-1])) if smiles else None
        except (MoleculeError, ImportError):
            mol = None
        found.append(mol)
    return found


def is_classification(out: Explanation) -> bool:
    """Whether predictions are log-probabilities, so that each row of their exponents sums to 1."""
    total = out.prediction.exp().sum(1)
    is_one = torch.allclose(total, torch.ones_like(total), atol=1e-3)
    return out.prediction.size(1) > 1 and is_one


def summarise(out: Explanation, most: int = 20) -> str:
    """Returns what was found, in words; see `Explanation.summary`."""
    if type(most) is not int or most < 1:
        raise ConfigError(f"`most` must be a whole number of at least 1 (got {most!r}).")
    some = _first(out, most)
    pairs = list(zip(some.split(), molecules(some), strict=True))
    if out.num_graphs == 1:
        (part, mol), *_ = pairs
        lines = [f"{_subject(out, 0)}: {_prediction(part)}. {_best_bonds(part, mol)}"]
        if part.trust is not None and int(part.bond_reached.sum()):
            lines.append(_trust_words(part.trust, is_classification(part)))
        if part.smiles and part.smiles[0] and mol is None:
            lines.append("Its SMILES does not describe this graph, so atoms are only numbered.")
    else:
        lines = [f"{out.num_graphs} {'graphs' if out.index is None else 'nodes'} were explained."]
        for number, (part, mol) in enumerate(pairs):
            flags = _flag_names(part.status.flags[0])
            words = f"{_subject(out, number)}: {_prediction(part)}. {_best_bonds(part, mol)}"
            lines.append(words + (f" [{flags}]" if flags else ""))
        if out.num_graphs > most:
            lines.append(f"... and {out.num_graphs - most} more.")
        if out.trust is not None:
            lines.append("Means: " + _trust_words(out.trust, is_classification(out)))
    counts = {flag: sum(flag in seen for seen in out.status.flags) for flag in ADVICE}
    for flag, number in counts.items():
        if number:
            where = "" if out.num_graphs == 1 else f", {number} of {out.num_graphs} graphs"
            lines.append(f"Take care ({flag.name}{where}): {ADVICE[flag]}")
    return "\n".join([*lines, *out.status.notes])


def _trust_words(trust: Trust, is_class: bool) -> str:
    """Returns how far to trust scores, in words; means over the graphs where it is known."""
    numbers = {name: float(value.nanmean()) for name, value in trust.columns().items()}
    shares = {name: f"{100 * value:.0f} %" for name, value in numbers.items()}
    words = []
    if not isnan(numbers["overlap"]):
        words.append(f"Another seed would choose {shares['overlap']} of the top 30 % of bonds too.")
    if not isnan(numbers["kept"]):
        what = "the probability" if is_class else "the value"
        size = shares["share"] if trust.share.numel() == 1 else "50 to 90 %"
        words.append(
            f"The best {size} of the bonds keep {shares['kept']} of {what}, random ones "
            f"{shares['kept_random']}, the worst {100 - 100 * numbers['needed']:.0f} %."
        )
    if not isnan(numbers["random_better"]):
        better = f"{numbers['random_better']:.2g}"
        verb = "is" if better in ("0", "1") else "are"
        better = "None" if better == "0" else better
        words.append(f"{better} of {ORDERS} random orders {verb} better.")
    certain = int(trust.is_certain.sum())
    if certain:
        where = "" if trust.log_odds.numel() == 1 else f" for {certain} graphs"
        words.append(f"The model is certain beyond 0.9999{where}; scores compare log-odds.")
    return " ".join(words)


def _subject(out: Explanation, number: int) -> str:
    """Returns how words call a graph or an explained node."""
    name = "Graph" if out.num_graphs == 1 else f"Graph {number}"
    if out.index is not None:
        return f"Node {int(out.index[number])}"
    smiles = out.smiles[number] if out.smiles else ""
    return f"{name} ({smiles})" if smiles and out.num_graphs > 1 else smiles or name


def _prediction(part: Explanation) -> str:
    """Returns the prediction for one graph in words."""
    target, row = int(part.target), part.prediction[0]
    if not is_classification(part):
        output = f" of output {target}" if row.numel() > 1 else ""
        return f"predicted value {float(row[target]):.4g}{output}"
    predicted = int(row.argmax())
    text = f"predicted class {predicted} with probability {_probability(row[predicted])}"
    if predicted != target:
        text += f"; explained is class {target} (probability {_probability(row[target])})"
    return text


def _probability(log_probability: Tensor) -> str:
    """Returns a probability with two digits, never 0 or 1."""
    value = float(log_probability.exp())
    return "> 0.99" if value > 0.995 else "< 0.01" if value < 0.005 else f"{value:.2f}"


def _best_bonds(part: Explanation, mol: Mol | None) -> str:
    """Returns the best bonds of one graph, named by their atoms."""
    num = int(part.bond_reached.sum())
    if num == 0:
        return "No bond can be scored."
    order = part.bond_score.masked_fill(~part.bond_reached, -torch.inf).argsort(
        descending=True, stable=True
    )
    words = []
    for bond in order[: min(_NAMED, num)].tolist():
        names = (_atom_name(mol, int(node)) for node in part.bond_index[:, bond])
        words.append(f"{'–'.join(names)} ({float(part.bond_score[bond]):.2g})")
    return f"Best of {num} bonds: {', '.join(words)}."


def _atom_name(mol: Mol | None, node: int) -> str:
    return str(node) if mol is None else f"{mol.GetAtomWithIdx(node).GetSymbol()}{node}"


def _flag_names(flag: Flag) -> str:
    return ", ".join(str(one.name) for one in ADVICE if one in flag)


def draw(
    out: Explanation,
    look: Look,
    smiles: str | Sequence[str] | None = None,
    truth: Tensor | None = None,
    title: str | None = None,
) -> Picture:
    """Returns the picture of an explanation; see `Explanation.draw`."""
    out = with_smiles(out, smiles)
    if truth is not None and tuple(truth.shape) != tuple(out.bond_score.shape):
        raise ConfigError(
            f"`truth` must have one entry per bond, {out.bond_score.numel()} in all (got shape "
            f"{tuple(truth.shape)})."
        )
    out, truth = _with_all_bonds(out, truth)
    some = _first(out, look.most)
    parts, bond_ramp, atom_ramp = some.split(), _ramp(some, look), _atom_ramp(some, look)
    truths: list[Tensor | None] = [None] * len(parts)
    if truth is not None:
        truths = [truth[out.bonds.batch == graph] for graph in range(len(parts))]
    if out.num_graphs == 1:
        return _cell(
            parts[0], look, truths[0], title or _cell_title(parts[0]), bond_ramp, atom_ramp
        )
    cells = [
        _cell(part, look, own, f"{number}: {_cell_title(part)}", bond_ramp, atom_ramp, legend=False)
        for number, (part, own) in enumerate(zip(parts, truths, strict=True))
    ]
    inner = grid(cells, look.columns, label=title or f"{len(parts)} graphs")
    width, palette = inner.size[0], find_palette(look.palette)
    if title is None and out.num_graphs > len(parts):
        title = f"{len(parts)} of {out.num_graphs} graphs"
    head = [title_line(title, width, size=15.0)] if title else []
    ramps = {look.names[0]: bond_ramp} | ({look.names[1]: atom_ramp} if atom_ramp else {})
    outlines = {look.names[2]: palette.top} if look.top is not None else {}
    outlines |= {"true bonds": palette.truth} if truth is not None and bool(truth.any()) else {}
    legend = legend_lines(ramps, outlines, width)
    return stack([*head, inner, *legend], label=inner.label, background=look.background)


def draw_methods(
    explanations: Mapping[str, Explanation],
    smiles: str | Sequence[str] | None = None,
    *,
    truth: Tensor | None = None,
    title: str | None = None,
    look: Look | None = None,
) -> Picture:
    """Returns explanations of the same graphs side by side: a row per graph, a column per method.

    Every picture has its own scale, since scores of methods have different units.

    Args:
        explanations: explanations of the same graphs by the names of their methods.
        smiles: as in `Explanation.draw`.
        truth: true bonds in the order of the first explanation, bool ``[M]``.
    """
    look = Look() if look is None else look
    named = {name: with_smiles(out, smiles) for name, out in explanations.items()}
    if not named:
        raise ConfigError("`explanations` must hold at least one explanation (got none).")
    first = next(iter(named.values()))
    for name, out in named.items():
        is_same = torch.equal(out.ptr.cpu(), first.ptr.cpu())
        if not is_same or not torch.equal(out.bond_index.cpu(), first.bond_index.cpu()):
            raise ConfigError(
                f"`explanations` must all be of the same graphs (got others for {name!r}: "
                f"{out!r}, not {first!r})."
            )
    named = {name: _with_all_bonds(out)[0] for name, out in named.items()}
    first, truth = _with_all_bonds(first, truth)
    shown = min(first.num_graphs, look.most)
    cells = []
    split = {name: _first(out, look.most).split() for name, out in named.items()}
    for graph in range(shown):
        own = None if truth is None else truth[first.bonds.batch == graph]
        for name, parts in split.items():
            part = parts[graph]
            words = name if shown == 1 else f"{name}, graph {graph}"
            ramps = _ramp(part, look), _atom_ramp(part, look)
            cells.append(_cell(part, look, own, words, *ramps))
    inner = grid(cells, len(named), label=title or " beside ".join(named))
    title = title or (_cell_title(first) if first.num_graphs == 1 else None)
    head = [title_line(title, inner.size[0], size=15.0)] if title else []
    return stack([*head, inner], label=inner.label, background=look.background)


def with_smiles(out: Explanation, smiles: str | Sequence[str] | None) -> Explanation:
    """Returns the explanation with other SMILES, one per graph."""
    if smiles is None:
        return out
    given = (smiles,) * out.num_graphs if isinstance(smiles, str) else tuple(smiles)
    is_one = isinstance(smiles, str) and smiles != "" and out.index is None
    if len(given) != out.num_graphs or (is_one and out.num_graphs > 1):
        raise ConfigError(
            f"`smiles` must hold one SMILES per graph, {out.num_graphs} in all (got "
            f"{1 if isinstance(smiles, str) else len(given)})."
        )
    return replace(out, smiles=given)


def _with_all_bonds(
    out: Explanation, truth: Tensor | None = None
) -> tuple[Explanation, Tensor | None]:
    """Returns explanations of nodes with all bonds where these are drawn, and the truth of them."""
    if out.whole is None or not (out.smiles or int(out.ptr[1]) <= _LARGE):
        return out, truth
    dense = out.to_dense()
    if truth is not None:  # bonds are in the same order
        truth = torch.zeros_like(dense.bond_reached).masked_scatter(dense.bond_reached, truth)
    return dense, truth


def _first(out: Explanation, most: int) -> Explanation:
    """Returns the explanation of the first graphs."""
    if out.num_graphs <= most:
        return out
    bonds, edges, nodes = out.bonds.batch < most, out.edge_batch < most, int(out.ptr[most])
    place = bonds.cumsum(0) - 1  # number of each bond among those kept
    kept = out.bonds
    per_graph = {name: getattr(out, name)[:most] for name in PER_GRAPH}
    per_bond = {name: getattr(out, name)[bonds] for name in PER_BOND}
    values = {name: getattr(out, name) for name in PER_ATOM}
    atoms = {name: value[:nodes] for name, value in values.items() if value is not None}
    return replace(
        out,
        edge_index=out.edge_index[:, edges],
        bonds=Bonds(
            kept.index[:, bonds],
            place[kept.edge_bond[edges]],
            kept.batch[bonds],
            kept.count[bonds],
        ),
        ptr=out.ptr[: most + 1],
        status=replace(out.status, flags=out.status.flags[:most]),
        index=None if out.index is None else out.index[:most],
        edge_origin=None if out.edge_origin is None else out.edge_origin[edges],
        smiles=None if out.smiles is None else out.smiles[:most],
        trust=None if out.trust is None else out.trust.take(slice(most)),
        **per_graph,
        **per_bond,
        **atoms,
    )


def _value(out: Explanation, look: Look) -> Tensor:
    """Returns what colours the bonds, ``[M]``."""
    value: Tensor = getattr(out, f"bond_{look.value}")
    if bool(value.isnan().any()):
        raise ConfigError(
            f"`value` must be one that the explainer gives (got {look.value!r}, which it has not: "
            "the numbers are nan). Draw value='score'."
        )
    return value


def _ramp(out: Explanation, look: Look) -> Ramp:
    palette, values = find_palette(look.palette), _value(out, look).tolist()
    return make_ramp(values, palette, signed=look.signed, limit=look.limit)


def _atom_ramp(out: Explanation, look: Look) -> Ramp | None:
    if out.atom_score is None:
        return None
    return make_ramp(out.atom_score.tolist(), find_palette(look.palette), signed=look.signed)


def _cell(
    part: Explanation,
    look: Look,
    truth: Tensor | None,
    title: str,
    bond_ramp: Ramp,
    atom_ramp: Ramp | None,
    *,
    legend: bool = True,
) -> Picture:
    """Returns the picture of one graph on given scales."""
    num_nodes = int(part.ptr[-1])
    smiles = part.smiles[0] if part.smiles else ""
    shown = torch.ones_like(part.bond_reached)
    if not smiles and part.index is not None and num_nodes > _LARGE:
        shown = part.bond_reached  # the surroundings of the explained node
    return draw_graph(
        part.bond_index[:, shown],
        _value(part, look)[shown],
        smiles=smiles,
        num_nodes=num_nodes,
        atom_score=part.atom_score,
        bond_truth=None if truth is None else truth[shown],
        bond_top=None if look.top is None else part.top(look.top)[shown],
        title=title,
        size=look.size,
        palette=look.palette,
        signed=bond_ramp.signed,
        atom_signed=None if atom_ramp is None else atom_ramp.signed,
        limit=bond_ramp.limit or None,
        atom_limit=None if atom_ramp is None else atom_ramp.limit or None,
        names=look.names,
        legend=legend,
        background=look.background,
        root=None if part.index is None else int(part.index),
    )


def _cell_title(part: Explanation) -> str:
    """Returns the prediction for one graph in a few words."""
    target = int(part.target)
    what = "" if part.index is None else f"node {int(part.index)}, "
    value = part.prediction[0, target]
    if is_classification(part):
        known = _probability(value)
        return f"{what}class {target}, p {known if known[0] in '<>' else f'= {known}'}"
    return f"{what}predicted {float(value):.3g}"


def to_html(out: Explanation) -> str:
    """Returns summary and pictures of the first graphs, for notebooks; never raises."""
    some = _first(out, _PICTURED)
    words = escape(summarise(out, most=_PICTURED)).replace("\n", "<br>")
    try:
        picture = draw(some, Look()).svg
    except (NicegnnError, ImportError) as error:
        picture = f"<em>No picture: {escape(str(error))}</em>"
    text = f"<div style='max-width: 60em; line-height: 1.4'>{words}</div>"
    return f"<div>{text}<div style='margin-top: 0.5em'>{picture}</div></div>"
