"""Explanations in words: predictions, best bonds, how far to trust them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import expm1, isnan
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nicegnn.explain.explanation import Explanation
from nicegnn.explain.trust import ADVICE, Flag, verdict_of
from nicegnn.molecule.smiles import MoleculeError, matched_molecule, require_rdkit

if TYPE_CHECKING:
    from rdkit.Chem import Mol

_NAMED = 3  # bonds that words name


def summarise(out: Explanation, most: int = 20) -> str:
    """Returns the result in words; see `Explanation.summary`."""
    listed = out.first(most)
    parts, mols = listed.split(), molecules(listed)
    is_one = out.num_graphs == 1
    lines = []
    for number, (part, mol) in enumerate(zip(parts, mols, strict=True)):
        line = f"{_subject(out, number)}: {_prediction(part)}. {_best_bonds(part, mol)}"
        name = "" if is_one else flag_names(part.status.flags[0])
        lines.append(line + _two_places(part, mol) + (f" [{name}]" if name else ""))
    if not is_one:
        pairs = "nodes" if out.index is not None and out.index.dim() == 1 else "pairs of nodes"
        units = "graphs" if out.index is None else pairs
        lines.insert(0, f"{out.num_graphs} {units} were explained.")
        lines += [f"... and {out.num_graphs - most} more."] if out.num_graphs > most else []
    if out.trust is not None and bool(out.bond_reached.any()):
        if is_one:
            numbers = {name: float(value) for name, value in vars(out.trust).items()}
            lines.append(trust_words(numbers, is_class=is_classification(out)))
        else:
            counted = Counter(out.trust.verdicts).most_common()
            texts = (f"{verdict} {number}" for verdict, number in counted)
            lines.append(f"Verdicts on the best bonds: {', '.join(texts)}.")
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


def _subject(out: Explanation, number: int) -> str:
    """Returns how words call a graph or an explained node."""
    if out.index is not None:
        return _roots(out.index[number]).capitalize()
    name = "Graph" if out.num_graphs == 1 else f"Graph {number}"
    smiles = out.smiles[number] if out.smiles else ""
    return f"{name} ({smiles})" if smiles and out.num_graphs > 1 else smiles or name


def _roots(index: Tensor) -> str:
    """Returns the explained node, or pair of nodes, in words."""
    roots = ", ".join(map(str, index.view(-1).tolist()))
    return f"{'pair' if index.numel() > 1 else 'node'} {roots}"


def _prediction(part: Explanation) -> str:
    """Returns the prediction for one graph in words."""
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
    """Returns a probability with two digits, never 0 or 1."""
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
        names = (f"{_symbol(mol, node)}{node}" for node in ends[bond])
        words.append(f"{'–'.join(names)} ({float(part.bond_score[bond]):.2g})")
    alike = size.count(last) - sum(size[bond] == last for bond in best)
    more = f", and {alike} more that equal the last" if alike else ""
    return f"Best of {num} bonds: {', '.join(words)}{more}."


def _two_places(part: Explanation, mol: Mol | None) -> str:
    """Returns what one graph's class needs of two groups of atoms, nothing if it is not known."""
    place = part.atom_place
    if place is None or not bool(place.any()):
        return ""
    groups = []
    for number in (1, 2):
        nodes = (place.abs() == number).nonzero().view(-1).tolist()
        groups.append(" ".join(f"{_symbol(mol, node)}{node}" for node in nodes))
    if int(place.max()) > 0:
        return f" Either of two groups of atoms suffices: {groups[0]}, or {groups[1]}."
    return f" Two groups of atoms are both needed: {groups[0]}, and {groups[1]}."


def _symbol(mol: Mol | None, node: int) -> str:
    return "" if mol is None else str(mol.GetAtomWithIdx(node).GetSymbol())


def flag_names(flag: Flag) -> str:
    """Returns the names of the observations about one graph, nothing if there are none."""
    return ", ".join(str(one.name) for one in ADVICE if one in flag)


def flag_words(flag: Flag) -> str:
    """Returns the observations about one graph in words.

    >>> flag_words(Flag.OK), flag_words(Flag.INSENSITIVE | Flag.ALL_RESTORED)
    ('ok', 'insensitive, all restored')
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
    if target < 0:
        return f"{what}{_prediction(part)}{care}"
    value = part.prediction[0, target]
    if is_classification(part):
        probability = _probability(value)
        equals = "" if probability[0] in "<>" else "= "
        return f"{what}class {target}, p {equals}{probability}{care}"
    return f"{what}predicted {float(value):.3g}{care}"


def is_classification(out: Explanation) -> bool:
    """Whether predictions are log-probabilities, so that each row of their exponents sums to 1."""
    total = out.prediction.exp().sum(1)
    is_one = torch.allclose(total, torch.ones_like(total), atol=1e-3)
    return out.prediction.size(1) > 1 and is_one


def molecules(out: Explanation) -> list[Mol | None]:
    """Returns the molecule of each graph, None where its SMILES is unknown or of another graph."""
    mols: list[Mol | None] = []
    if out.smiles is not None:
        out = out.to_dense()
    for part, smiles in zip(out.split(), out.smiles or ("",) * out.num_graphs, strict=True):
        try:
            mol = matched_molecule(smiles, part.bond_index, int(part.ptr[-1])) if smiles else None
        except (MoleculeError, ImportError):
            mol = None
        mols.append(mol)
    return mols
