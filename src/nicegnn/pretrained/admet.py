"""ADMET-AI: 41 properties of drugs, each predicted and explained by five Chemprop models.

Scores are those of an `Ensemble`; a positive one raises the property. Damaged bonds and atoms say
what those of approved drugs say.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from nicegnn.errors import ConfigError
from nicegnn.intervention.background import record_background
from nicegnn.pretrained.chemprop import read_mpnn
from nicegnn.pretrained.ensemble import Ensemble, Member, Output
from nicegnn.pretrained.model_file import ModelCard, Pretrained
from nicegnn.target.chemprop import ChempropModel
from nicegnn.target.frozen_model import Target

ADMET = "admet:"  # stands before names of endpoints where a word names a model
_PROTOTYPES, _DRUGS = 4, 200  # of each member; drugs whose bonds and atoms they are
_POOR = 0.3  # R² below which neither value nor explanation is of use


@cache
def endpoints() -> dict[str, Output]:
    """Returns all endpoints by their id, in the order of ADMET-AI's table."""
    kinds = ("classification", "regression")
    columns = {kind: read_mpnn(_paths(kind)[0])[1] for kind in kinds}
    found, drugs = {}, _table("drugbank_approved.csv")
    for name, row in _table("admet.csv").set_index("id").iterrows():
        kind, is_class = row["task_type"], row["task_type"] == "classification"
        if name not in columns[kind]:  # what RDKit computes
            continue
        quality = float(row["AUROC" if is_class else "R^2"])
        share = f"The models explain {max(0.0, quality):.0%} of the variance of held-out molecules"
        doubt = f"{share}: do not use this value, nor its explanation."
        card = ModelCard(
            name=name,
            question=row["name"],
            task="regression",  # a probability is told as a value
            unit="probability" if is_class else str(row["units"]).replace("nan", "-"),
            featurizer="chemprop",
            data="ADMET-AI",
            architecture="five models of Chemprop",
            test={"auc" if is_class else "r2": quality},
            doubt="" if is_class or quality >= _POOR else doubt,
        )
        found[name] = Output(
            mode="binary" if is_class else "regression",
            column=columns[kind].index(name),
            explained=1,
            group=kind,
            name=name,
            card=card,
            drugs=torch.tensor(drugs[name].to_numpy(), dtype=torch.float32),
        )
    return found


def named_endpoints(words: str) -> list[Output]:
    """Returns endpoints by ids with commas between them, or by ``all``."""
    known = endpoints()
    if words.strip() == "all":
        return list(known.values())
    by_name = {name.lower(): one for name, one in known.items()}
    chosen = dict.fromkeys(word.strip().lower() for word in words.split(","))
    if unknown := [word for word in chosen if word not in by_name]:
        every = ", ".join(known)
        raise ConfigError(f"`model` must be admet:all or some of {every} (got {unknown[0]!r}).")
    return [by_name[word] for word in chosen]


def load_admet(words: str, device: str | torch.device = "cpu") -> Pretrained:
    """Returns the named endpoints, which the same passes of five models explain."""
    chosen = named_endpoints(words.removeprefix(ADMET))
    cards, card = {one.name: one.card for one in chosen}, chosen[0].card
    groups = {kind: _members(kind, str(device)) for kind in {one.group for one in chosen}}
    explainer = Ensemble(groups, chosen)
    if len(cards) > 1:
        question = f"{len(cards)} properties of drugs by ADMET-AI"
        card = ModelCard("ADMET-AI", question, "regression", featurizer="chemprop")
    model: Any = explainer.target.model
    origin = {"model": explainer.weights, "featurizer": "chemprop", "endpoints": ",".join(cards)}
    return Pretrained(model, explainer, model.featurizer, card, origin, cards=cards)


@cache
def _members(kind: str, device: str) -> Sequence[Member]:
    """Returns the members of a kind, read once in each process.

    Their backgrounds are approved drugs of one part, evenly spaced in ADMET-AI's table.
    """
    listed = [one for one in _table("drugbank_approved.csv")["smiles"] if "." not in one]
    listed = [one for one in listed if 10 <= len(one) <= 100]
    listed, members = listed[:: max(1, len(listed) // _DRUGS)][:_DRUGS], []
    for path in _paths(kind):
        model = ChempropModel(read_mpnn(path)[0].to(device))
        target = Target(model, mode="regression")  # logits are read as they are
        drugs = [model.featurizer(smiles) for smiles in listed]
        members.append((target, record_background(target, drugs, _PROTOTYPES)))
    return tuple(members)


@cache
def _table(name: str) -> Any:
    import pandas as pd

    return pd.read_csv(_home() / "data" / name)


def _paths(kind: str) -> list[Path]:
    return sorted((_home() / "models" / f"admet_{kind}").glob("*.pt"))


def _home() -> Path:
    """Returns the folder of ADMET-AI's models and tables; nothing of it is imported."""
    found = find_spec("admet_ai")
    if found is None or found.origin is None:
        raise ImportError("ADMET-AI is missing. Install it with `pip install 'nicegnn[admet]'`.")
    return Path(found.origin).parent / "resources"
