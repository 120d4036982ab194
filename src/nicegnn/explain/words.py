"""Explanations in words: predictions, best bonds, how far to trust them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import expm1, isnan
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nicegnn.errors import ConfigError
from nicegnn.explain.explanation import Explanation
from nicegnn.explain.status import ADVICE, Flag
from nicegnn.molecule.smiles import MoleculeError, matched_molecule, require_rdkit

if TYPE_CHECKING:
    from rdkit.Chem import Mol

    from nicegnn.explain.trust import Trust

_NAMED = 3  # bonds that words name


def summarise(out: Explanation, most: int = 20) -> str:
    """Returns the result in words; see `Explanation.summary`."""
    if type(most) is not int or most < 1:
        raise ConfigError(f"`most` must be a whole number of at least 1 (got {most!r}).")
    if out.num_graphs == 1:
        lines = paragraph(out)
    else:
        listed = out.first(most)
        pairs = zip(listed.split(), molecules(listed), strict=True)
        lines = [f"{out.num_graphs} {_units(out)} were explained."]
        for number, (part, mol) in enumerate(pairs):
            flags = flag_names(part.status.flags[0])
            words = f"{_subject(out, number)}: {_prediction(part)}. {_best_bonds(part, mol)}"
            lines.append(words + (f" [{flags}]" if flags else ""))
        if out.num_graphs > most:
            lines.append(f"... and {out.num_graphs - most} more.")
        if out.trust is not None:
            lines.append(_trusted(out, out.trust))
    counts = {flag: sum(flag in seen for seen in out.status.flags) for flag in ADVICE}
    for flag, number in counts.items():
        if number:
            where = "" if out.num_graphs == 1 else f", {number} of {out.num_graphs} graphs"
            lines.append(f"Take care ({flag.name}{where}): {ADVICE[flag]}")
    return "\n".join([*lines, *out.status.notes])


def paragraph(part: Explanation) -> list[str]:
    """Returns the result for one graph without warnings: prediction, best bonds, trust."""
    (mol,) = molecules(part)
    lines = [f"{_subject(part, 0)}: {_prediction(part)}. {_best_bonds(part, mol)}"]
    if part.trust is not None and int(part.bond_reached.sum()):
        lines.append(_trusted(part, part.trust))
    if part.smiles and part.smiles[0] and mol is None:
        lines.append("Its SMILES does not describe this graph, so atoms are only numbered.")
    return lines


def trust_words(numbers: Mapping[str, float], *, is_class: bool = True) -> str:
    """Returns how far to trust the best bond of a graph, in words, by the numbers of `Trust`.

    >>> trust_words({"largest": 4.13, "share": 0.6, "chance": 0.97})
    'In about 97 of 100 such cases the best bond is a true one: rely on it. Without it 98 % of the \
odds are lost (4.1 log-odds), 60 % of what all bonds lose.'
    """
    largest, share, chance = (numbers[name] for name in ("largest", "share", "chance"))
    words = []
    if not isnan(chance):
        # imported here, because trust imports what words are about
        from nicegnn.explain.trust import verdict_of

        words.append(
            f"In about {_of_hundred(chance)} of 100 such cases the best bond is a true one: "
            f"{verdict_of(chance)}."
        )
    if not isnan(largest):
        lost = f"{100 * -expm1(-largest):.0f} % of the odds are lost ({largest:.2g} log-odds)"
        if not is_class:
            lost = f"the value changes by {largest:.2g}"
        total = "" if isnan(share) else f", {100 * share:.0f} % of what all bonds lose"
        words.append(f"Without it {lost}{total}." if words else f"Without the best bond {lost}.")
    if isnan(chance) and words:
        words.append("How often such a bond is a true one was not checked here.")
    return " ".join(words)


def _of_hundred(chance: float) -> int:
    """Returns a chance as a whole number, never 0 or 100."""
    return min(99, max(1, round(100 * chance)))


def _trusted(out: Explanation, trust: Trust) -> str:
    """Returns `trust_words` of one graph, or how many graphs have which verdict."""
    if out.num_graphs == 1:
        numbers = {name: float(value) for name, value in trust.columns().items()}
        return trust_words(numbers, is_class=is_classification(out))
    counts = Counter(trust.verdicts)
    texts = (f"{verdict} {number}" for verdict, number in counts.most_common())
    return f"Verdicts on the best bonds: {', '.join(texts)}."


def _subject(out: Explanation, number: int) -> str:
    """Returns how words call a graph or an explained node."""
    name = "Graph" if out.num_graphs == 1 else f"Graph {number}"
    if out.index is not None:
        roots = out.index[number].view(-1).tolist()
        return f"Node {roots[0]}" if len(roots) == 1 else f"Pair {roots[0]}, {roots[1]}"
    smiles = out.smiles[number] if out.smiles else ""
    return f"{name} ({smiles})" if smiles and out.num_graphs > 1 else smiles or name


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
    named = min(_NAMED, num)
    order = sorted(range(len(size)), key=lambda bond: (-size[bond], *_place(part, mol, bond)))
    words = []
    for bond in order[:named]:
        names = (_atom_name(mol, node) for node in _ends(part, mol, bond))
        words.append(f"{'–'.join(names)} ({float(part.bond_score[bond]):.2g})")
    alike = sum(one == size[order[named - 1]] for one in size) - sum(
        size[bond] == size[order[named - 1]] for bond in order[:named]
    )
    more = f", and {alike} more that equal the last" if alike else ""
    return f"Best of {num} bonds: {', '.join(words)}{more}."


def _ends(part: Explanation, mol: Mol | None, bond: int) -> list[int]:
    """Returns the two atoms of a bond, in an order that the spelling of a molecule leaves alone."""
    rank = canonical_ranks(mol)
    return sorted((int(node) for node in part.bond_index[:, bond]), key=lambda n: rank.get(n, n))


def _place(part: Explanation, mol: Mol | None, bond: int) -> tuple[int, ...]:
    """Returns the place of a bond among equal ones, whatever the spelling of the molecule."""
    rank = canonical_ranks(mol)
    return tuple(rank.get(node, node) for node in _ends(part, mol, bond))


def canonical_ranks(mol: Mol | None) -> dict[int, int]:
    """Returns a rank of each atom that depends on the molecule alone, not on how it is written."""
    if mol is None:
        return {}
    chem = require_rdkit()
    return dict(enumerate(chem.CanonicalRankAtoms(mol, breakTies=True)))


def _atom_name(mol: Mol | None, node: int) -> str:
    return str(node) if mol is None else f"{mol.GetAtomWithIdx(node).GetSymbol()}{node}"


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
    what = ""
    if part.index is not None:
        roots = part.index.view(-1).tolist()
        what = f"node {roots[0]}, " if len(roots) == 1 else f"pair {roots[0]}, {roots[1]}, "
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


def _units(out: Explanation) -> str:
    """Returns what was explained, in words."""
    if out.index is None:
        return "graphs"
    return "nodes" if out.index.dim() == 1 else "pairs of nodes"
