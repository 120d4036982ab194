"""Explanations in words: predictions, best bonds, how far to trust them."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nicegnn.errors import ConfigError
from nicegnn.explain.explanation import ADVICE, ORDERS, SHARES, Explanation, Flag
from nicegnn.molecule.smiles import MoleculeError, matched_molecule

if TYPE_CHECKING:
    from rdkit.Chem import Mol

    from nicegnn.explain.trust import Trust

_NAMED = 3  # bonds that words name


def summarise(out: Explanation, most: int = 20) -> str:
    """Returns what was found, in words; see `Explanation.summary`."""
    if type(most) is not int or most < 1:
        raise ConfigError(f"`most` must be a whole number of at least 1 (got {most!r}).")
    if out.num_graphs == 1:
        lines = paragraph(out)
    else:
        some = out.first(most)
        pairs = zip(some.split(), molecules(some), strict=True)
        lines = [f"{out.num_graphs} {'graphs' if out.index is None else 'nodes'} were explained."]
        for number, (part, mol) in enumerate(pairs):
            flags = flag_names(part.status.flags[0])
            words = f"{_subject(out, number)}: {_prediction(part)}. {_best_bonds(part, mol)}"
            lines.append(words + (f" [{flags}]" if flags else ""))
        if out.num_graphs > most:
            lines.append(f"... and {out.num_graphs - most} more.")
        if out.trust is not None:
            lines.append("Means: " + _trusted(out, out.trust))
    counts = {flag: sum(flag in seen for seen in out.status.flags) for flag in ADVICE}
    for flag, number in counts.items():
        if number:
            where = "" if out.num_graphs == 1 else f", {number} of {out.num_graphs} graphs"
            lines.append(f"Take care ({flag.name}{where}): {ADVICE[flag]}")
    return "\n".join([*lines, *out.status.notes])


def paragraph(part: Explanation) -> list[str]:
    """Returns what was found in one graph, without warnings: prediction, best bonds, trust."""
    (mol,) = molecules(part)
    lines = [f"{_subject(part, 0)}: {_prediction(part)}. {_best_bonds(part, mol)}"]
    if part.trust is not None and int(part.bond_reached.sum()):
        lines.append(_trusted(part, part.trust))
    if part.smiles and part.smiles[0] and mol is None:
        lines.append("Its SMILES does not describe this graph, so atoms are only numbered.")
    return lines


def trust_words(
    numbers: Mapping[str, float], *, is_class: bool = True, size: str = "", certain: str = ""
) -> str:
    """Returns how far to trust scores, in words, from numbers by the names of `Trust`.

    ``size`` replaces the share of bonds, ``certain`` says where the model is sure beyond 0.9999.
    """
    shares = {name: f"{100 * value:.0f} %" for name, value in numbers.items() if not isnan(value)}
    words = []
    if "overlap" in shares:
        words.append(f"Another seed would choose {shares['overlap']} of the top 30 % of bonds too.")
    if "kept" in shares:
        what = "the probability" if is_class else "the effect of all bonds on the value"
        words.append(
            f"The best {size or shares['share']} of the bonds keep {shares['kept']} of {what}, "
            f"random ones {shares['kept_random']}, the worst {100 - 100 * numbers['needed']:.0f} %."
        )
    if "random_better" in shares:
        better = f"{numbers['random_better']:.2g}"
        verb = "is" if better in ("0", "1") else "are"
        better = "None" if better == "0" else better
        words.append(f"{better} of {ORDERS} random orders {verb} better.")
    if certain:
        words.append(f"The model is certain beyond 0.9999{certain}; scores compare log-odds.")
    return " ".join(words)


def _trusted(out: Explanation, trust: Trust) -> str:
    """Returns `trust_words` of one graph, or of the means over graphs."""
    numbers = {name: float(value.nanmean()) for name, value in trust.columns().items()}
    num, size, certain = int(trust.is_certain.sum()), "", ""
    if out.num_graphs > 1:
        size = f"{100 * min(SHARES):.0f} to {100 * max(SHARES):.0f} %"
        certain = f" for {num} of {out.num_graphs} graphs" if num else ""
    elif num:
        certain = " here"
    return trust_words(numbers, is_class=is_classification(out), size=size, certain=certain)


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
    known = {flag_words(flag): text for flag, text in ADVICE.items()}
    return " ".join(known[one] for one in words.split(", ") if one in known)


def title_of(part: Explanation) -> str:
    """Returns the prediction for one graph in a few words, and what to take care of."""
    target, flag = int(part.target), part.status.flags[0]
    what = "" if part.index is None else f"node {int(part.index)}, "
    care = "" if flag == Flag.OK else f" ({flag_words(flag)})"
    value = part.prediction[0, target]
    if is_classification(part):
        known = _probability(value)
        return f"{what}class {target}, p {known if known[0] in '<>' else f'= {known}'}{care}"
    return f"{what}predicted {float(value):.3g}{care}"


def is_classification(out: Explanation) -> bool:
    """Whether predictions are log-probabilities, so that each row of their exponents sums to 1."""
    total = out.prediction.exp().sum(1)
    is_one = torch.allclose(total, torch.ones_like(total), atol=1e-3)
    return out.prediction.size(1) > 1 and is_one


def molecules(out: Explanation) -> list[Mol | None]:
    """Returns the molecule of each graph, None where its SMILES is unknown or of another graph."""
    found: list[Mol | None] = []
    if out.smiles is not None:
        out = out.to_dense()
    for part, smiles in zip(out.split(), out.smiles or ("",) * out.num_graphs, strict=True):
        try:
            mol = matched_molecule(smiles, part.bond_index, int(part.ptr[-1])) if smiles else None
        except (MoleculeError, ImportError):
            mol = None
        found.append(mol)
    return found
