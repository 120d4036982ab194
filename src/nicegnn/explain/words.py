"""Explanations in words and tables: predictions, bonds, atoms, how far to trust them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from math import expm1, isnan
from typing import TYPE_CHECKING, Any, get_args

import torch
from torch import Tensor

from nicegnn.config import check_choice
from nicegnn.errors import ConfigError
from nicegnn.explain.explanation import Explanation, Kind
from nicegnn.explain.trust import ADVICE, Flag, verdict_of
from nicegnn.graph.case import edge_slots, shared_rank
from nicegnn.molecule.smiles import MoleculeError, matched_molecule, require, require_rdkit

if TYPE_CHECKING:
    import pandas as pd
    from rdkit.Chem import Mol

_NAMED = 3  # bonds that words name


def summarise(out: Explanation, most: int = 20) -> str:
    """Returns the result in words; see `Explanation.summary`."""
    listed, is_one = out.first(most), out.num_graphs == 1
    mols, lines = molecules(listed), []
    for number, (part, mol) in enumerate(zip(listed.split(), mols, strict=True)):
        smiles = part.smiles[0] if part.smiles else ""
        name = "Graph" if is_one else f"Graph {number}"
        name = f"{name} ({smiles})" if smiles and not is_one else smiles or name
        subject = name if part.index is None else _roots(part.index).capitalize()
        flags = "" if is_one else flag_names(part.status.flags[0])
        line = f"{subject}: {_prediction(part)}. {_best_bonds(part, mol)}"
        lines.append(line + _two_places(part, mol) + (f" [{flags}]" if flags else ""))
    if not is_one:
        pairs = "nodes" if out.index is not None and out.index.dim() == 1 else "pairs of nodes"
        units = "graphs" if out.index is None else pairs
        lines.insert(0, f"{out.num_graphs} {units} were explained.")
        lines += [f"... and {out.num_graphs - most} more."] if out.num_graphs > most else []
    if out.trust is not None and bool(out.bond_reached.any()):
        numbers = {name: float(value[0]) for name, value in vars(out.trust).items()}
        counted = Counter(out.trust.verdicts).most_common()
        texts = ", ".join(f"{verdict} {number}" for verdict, number in counted)
        one = trust_words(numbers, is_class=is_classification(out))
        lines.append(one if is_one else f"Verdicts on the best bonds: {texts}.")
    if is_one and out.smiles and out.smiles[0] and mols[0] is None:
        lines.append("Its SMILES does not describe this graph, so atoms are only numbered.")
    for flag, number in out.status.counts.items():
        where = "" if is_one else f", {number} of {out.num_graphs} graphs"
        lines.append(f"Take care ({flag.name}{where}): {ADVICE[flag]}")
    return "\n".join([*lines, *out.status.notes])


def trust_words(numbers: Mapping[str, float], *, is_class: bool = True, among: str = "") -> str:
    """Returns how far to trust the best bond of a graph, in words, by the numbers of `Trust`.

    `among` names the cases that the chance was checked on, where this one is none of them.

    >>> trust_words({"largest": 4.13, "share": 0.6, "chance": 0.97})
    'In about 97 of 100 such cases the best bond is a true one: rely on it. Without it 98 % of the \
odds are lost (4.1 log-odds), 60 % of what all bonds lose.'
    """
    largest, share, chance = (numbers[name] for name in ("largest", "share", "chance"))
    words = []
    if not isnan(chance):
        such, of_hundred = f"such cases {among}".rstrip(), min(99, max(1, round(100 * chance)))
        verdict = careful(verdict_of(chance)) if among else verdict_of(chance)
        words.append(f"In about {of_hundred} of 100 {such} the best bond is a true one: {verdict}.")
    if not isnan(largest):
        lost = f"{100 * -expm1(-largest):.0f} % of the odds are lost ({largest:.2g} log-odds)"
        if not is_class:
            lost = f"the value changes by {largest:.2g}"
        total = "" if isnan(share) else f", {100 * share:.0f} % of what all bonds lose"
        words.append(f"Without it {lost}{total}." if words else f"Without the best bond {lost}.")
    if isnan(chance) and words:
        words.append("How often such a bond is a true one was not checked here.")
    return " ".join(words)


def careful(verdict: str) -> str:
    """Returns the verdict on a case that is unlike those that chances were checked on."""
    return "look twice" if verdict == "rely on it" else verdict


def _roots(index: Tensor) -> str:
    roots = ", ".join(map(str, index.view(-1).tolist()))
    return f"{'pair' if index.numel() > 1 else 'node'} {roots}"


def _prediction(part: Explanation) -> str:
    target, row = int(part.target), part.prediction[0]
    if target < 0:
        return f"{row.numel()} values are explained together"
    if not is_classification(part):
        output = f" of output {target}" if row.numel() > 1 else ""
        return f"predicted value {float(row[target]):.4g}{output}"
    predicted = int(row.argmax())
    text = f"predicted class {predicted} with probability {_probability(row[predicted])}"
    if predicted != target:
        text += f"; explained is class {target} (probability {_probability(row[target])})"
    return text


def _probability(log_probability: Tensor) -> str:
    value = float(log_probability.exp())
    return "> 0.99" if value > 0.995 else "< 0.01" if value < 0.005 else f"{value:.2f}"


def _best_bonds(part: Explanation, mol: Mol | None) -> str:
    """Returns the best bonds of one graph, named by their atoms, and says which are equal."""
    num = int(part.bond_reached.sum())
    if num == 0:
        return "No bond can be scored."
    size = part.ranking.masked_fill(~part.bond_reached, -torch.inf).tolist()
    # places of bonds must not depend on how a molecule is written
    rank = {} if mol is None else dict(enumerate(require_rdkit().CanonicalRankAtoms(mol)))
    ends = [sorted(map(int, pair), key=lambda n: rank.get(n, n)) for pair in part.bond_index.t()]
    places = [[rank.get(node, node) for node in pair] for pair in ends]
    order = sorted(range(len(size)), key=lambda bond: (-size[bond], places[bond]))
    best, last = order[: min(_NAMED, num)], size[order[min(_NAMED, num) - 1]]
    if size[order[0]] == 0:
        return f"It rests on none of its {num} bonds alone."
    words = []
    for bond in best:
        names = (f"{symbol_of(mol, node) or ''}{node}" for node in ends[bond])
        words.append(f"{'–'.join(names)} ({float(part.bond_score[bond]):.2g})")
    alike = size.count(last) - sum(size[bond] == last for bond in best)
    more = f", and {alike} more that equal the last" if alike else ""
    return f"Best of {num} bonds: {', '.join(words)}{more}."


def _two_places(part: Explanation, mol: Mol | None) -> str:
    """Returns what one graph's class needs of two groups of atoms, nothing if it is not known."""
    place = part.atom_place
    if place is None or not bool(place.any()):
        return ""
    one, other = (
        " ".join(f"{symbol_of(mol, node) or ''}{node}" for node in nodes.view(-1).tolist())
        for nodes in ((place.abs() == number).nonzero() for number in (1, 2))
    )
    if int(place.max()) > 0:
        return f" Either of two groups of atoms suffices: {one}, or {other}."
    return f" Two groups of atoms are both needed: {one}, and {other}."


def symbol_of(mol: Mol | None, node: int) -> str | None:
    return None if mol is None else str(mol.GetAtomWithIdx(node).GetSymbol())


def flag_names(flag: Flag) -> str:
    return ", ".join(str(one.name) for one in ADVICE if one in flag)


def flag_words(flag: Flag) -> str:
    """Returns the observations about one graph in words.

    >>> flag_words(Flag.INSENSITIVE | Flag.ALL_RESTORED)
    'insensitive, all restored'
    """
    return flag_names(flag).lower().replace("_", " ") or "ok"


def advice_for(words: str) -> str:
    """Returns the advice for observations that `flag_words` has written.

    >>> advice_for("ok"), advice_for("no edges")
    ('', 'The graph has no edges, so there is nothing to score.')
    """
    advice = {flag_words(flag): text for flag, text in ADVICE.items()}
    return " ".join(advice[one] for one in words.split(", ") if one in advice)


def title_of(part: Explanation) -> str:
    """Returns the prediction for one graph in a few words, and what to take care of."""
    target, flag = int(part.target), part.status.flags[0]
    what = "" if part.index is None else f"{_roots(part.index)}, "
    care = "" if flag == Flag.OK else f" ({flag_words(flag)})"
    said = f"predicted {float(part.prediction[0, target]):.3g}"
    if target < 0:
        said = _prediction(part)
    elif is_classification(part):
        probability = _probability(part.prediction[0, target])
        said = f"class {target}, p {'' if probability[0] in '<>' else '= '}{probability}"
    return f"{what}{said}{care}"


def is_classification(out: Explanation) -> bool:
    """Whether predictions are log-probabilities, so that each row of their exponents sums to 1."""
    total = out.prediction.exp().sum(1)
    is_one = torch.allclose(total, torch.ones_like(total), atol=1e-3)
    return out.prediction.size(1) > 1 and is_one


def molecules(out: Explanation) -> list[Mol | None]:
    """Returns the molecule of each graph, None where its SMILES is unknown or of another graph."""
    mols: list[Mol | None] = [None] * out.num_graphs
    for number, part in enumerate(out.to_dense().split() if out.smiles else ()):
        with suppress(MoleculeError, ImportError):
            if part.smiles and part.smiles[0]:
                ends, num_nodes = part.bond_index, int(part.ptr[-1])
                mols[number] = matched_molecule(part.smiles[0], ends, num_nodes)
    return mols


def make_frame(out: Explanation, kind: Kind) -> pd.DataFrame:
    """Returns the table of bonds, atoms or graphs; see `Explanation.to_frame`."""
    check_choice("kind", kind, get_args(Kind))
    make = {"bonds": _bond_columns, "atoms": _atom_columns, "graphs": _graph_columns}[kind]
    columns = {
        name: value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        for name, value in make(out).items()
    }
    return require("pandas", "tables").DataFrame(columns)


def _bond_columns(out: Explanation) -> dict[str, Any]:
    batch = out.bonds.batch
    a, b = out.bond_index - out.ptr[batch]  # numbers within the graph
    score = out.ranking.masked_fill(~out.bond_reached, -torch.inf)
    columns = _about_graphs(out, batch)
    columns |= {"bond": edge_slots(batch, out.num_graphs), "atom_a": a, "atom_b": b}
    if out.edge_kind is not None:  # relations by number, kinds by name
        kind = torch.zeros_like(out.bonds.batch).index_copy(0, out.bonds.edge_bond, out.edge_kind)
        names = None if out.kinds is None else [" ".join(ends) for ends in out.kinds.edges]
        columns["kind"] = [names[k] if names else k for k in kind.tolist()]
    if out.smiles is not None:  # nothing where the molecule is not known
        found = molecules(out)
        mols = [found[graph] for graph in batch.tolist()]
        columns["element_a"] = [*map(symbol_of, mols, a.tolist())]
        columns["element_b"] = [*map(symbol_of, mols, b.tolist())]
        columns["bond_type"] = [
            None if mol is None else str(mol.GetBondBetweenAtoms(*pair).GetBondType()).lower()
            for mol, *pair in zip(mols, a.tolist(), b.tolist(), strict=True)
        ]
    return columns | {
        "score": out.bond_score,
        "rank": shared_rank(score, batch, out.num_graphs),
        "loss": out.bond_loss,
        "stderr": out.bond_stderr,
        "gate": out.bond_gate,
        "reached": out.bond_reached,
    }


def _atom_columns(out: Explanation) -> dict[str, Any]:
    if out.atom_score is None:
        raise ConfigError("This explanation has no scores of atoms. Take `to_frame('bonds')`.")
    batch = torch.arange(out.num_graphs, device=out.ptr.device).repeat_interleave(out.ptr.diff())
    atoms = edge_slots(batch, out.num_graphs)
    columns = _about_graphs(out, batch) | {"atom": atoms}
    if out.smiles is not None:
        mols = molecules(out)
        columns["element"] = [*map(symbol_of, [mols[n] for n in batch.tolist()], atoms.tolist())]
    unknown = torch.full_like(out.atom_score, torch.nan)
    return columns | {
        "score": out.atom_score,
        "rank": shared_rank(out.atom_score.abs(), batch, out.num_graphs),
        "loss": unknown if out.atom_loss is None else out.atom_loss,
        "stderr": unknown if out.atom_stderr is None else out.atom_stderr,
    }


def _graph_columns(out: Explanation) -> dict[str, Any]:
    columns = _about_graphs(out, torch.arange(out.num_graphs))
    chosen = out.prediction.gather(1, out.target.clamp(min=0).view(-1, 1)).view(-1)
    chosen = torch.where(out.target < 0, torch.nan, chosen)  # all values are explained together
    columns["explained"] = out.target
    if is_classification(out):
        columns["predicted"] = out.prediction.argmax(1)
        columns["probability"] = chosen.exp()  # of the explained class
    else:
        columns["prediction"] = chosen
    for name in ("restored", "risk_corrupted", "risk_boundary", "completeness_gap"):
        columns[name] = getattr(out, name)
    if out.trust is not None:
        columns |= vars(out.trust) | {"verdict": list(out.trust.verdicts)}
    columns["flags"] = [flag_names(flag) for flag in out.status.flags]
    return columns


def _about_graphs(out: Explanation, batch: Tensor) -> dict[str, Any]:
    batch = batch.cpu()
    columns: dict[str, Any] = {"graph": batch}
    if out.smiles is not None:
        columns["smiles"] = [out.smiles[graph] for graph in batch.tolist()]
    if out.index is not None:
        names = ("node",) if out.index.dim() == 1 else ("node", "other_node")
        for name, node in zip(names, out.index.view(out.num_graphs, -1).t(), strict=True):
            columns[name] = node.cpu()[batch]
    return columns
