"""The demo: generate molecules, train a model on them, explain new ones, judge that."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import nicegnn
from nicegnn.config import Settings, check_count
from nicegnn.errors import ConfigError
from nicegnn.molecule.generated import generate_smiles
from nicegnn.molecule.smiles import parse_smiles
from nicegnn.screening.fragments import find_patterns
from nicegnn.screening.gallery import molecule_of
from nicegnn.screening.learning import LearnConfig, learn
from nicegnn.screening.loading import ModelConfig, load_words
from nicegnn.screening.reading import Reader
from nicegnn.screening.run import ScreenConfig, read_explained, screen
from nicegnn.store import write_json


@dataclass(frozen=True)
class DemoConfig(Settings):
    """Settings of the demo."""

    group: str = "benzene=c1ccccc1"  # what labels the molecules: NAME=SMARTS, or a group's name
    num_molecules: int = 2000  # generated to train on; a tenth as many are explained
    epochs: int = 15  # most epochs of the training
    fit_steps: int = 150  # steps of the explainer's fit
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self, "num_molecules", "epochs", "fit_steps")


@dataclass(frozen=True)
class DemoResult:
    """What the demo found, over new molecules that have the group and are predicted to have it."""

    accuracy: float  # of the model, on held-out molecules
    num_judged: int  # molecules
    best_in_group: float  # share of them whose best bond lies in the group
    by_chance: float  # the same for a bond taken at random
    seconds: float
    gallery: str
    model: str


def run_demo(
    out: str | Path,
    config: DemoConfig | None = None,
    *,
    say: Callable[[str], object] = lambda text: None,
) -> DemoResult:
    """Runs what ``nicegnn train`` and ``nicegnn explain`` run, on molecules that it generates.

    The folder `out` then holds tables, the model, ``gallery.html`` and ``demo.json``. `say` is
    told what happens, step by step.
    """
    config, out, started = config or DemoConfig(), Path(out), time.monotonic()
    ((name, pattern),) = find_patterns((config.group,)).items()
    num_new = max(20, config.num_molecules // 10)
    say(f"1/3 Generating {config.num_molecules + num_new} molecules, with and without {name} ...")
    smiles = generate_smiles(config.num_molecules + num_new, seed=config.seed)
    labels = [f"{'' if _has(one, pattern) else 'no '}{name}" for one in smiles]
    known, new = out / "molecules.csv", out / "new.csv"
    out.mkdir(parents=True, exist_ok=True)
    _write(known, smiles[num_new:], labels[num_new:])
    _write(new, smiles[:num_new], labels[:num_new])
    say("2/3 Training a GIN that reads bond types, without telling it where the group is ...")
    model = out / "model.safetensors"
    settings = LearnConfig(
        label="label",
        question=f"Is there {name} in it?",
        split="random",
        featurizer="elements",
        epochs=config.epochs,
        fit_steps=config.fit_steps,
        seed=config.seed,
    )
    learned = learn(Reader(known, columns=("label",)), model, settings)
    say(f"3/3 Explaining {num_new} new molecules ...")
    subject = load_words(ModelConfig(model=str(model)))
    reader = Reader(new)
    screen(reader, subject, out, ScreenConfig(substructures=(config.group,)), overwrite=True)
    judged = [
        _judge(molecule, bonds, pattern)
        for molecule, bonds in read_explained(out)
        if molecule[f"has {name}"] and molecule["prediction"] == name and bonds
    ]
    if not judged:
        raise ConfigError(
            f"`group` must be in some new molecules, and the model must find it (got {name!r}, "
            "found in none). Name a more common group, or more epochs."
        )
    result = DemoResult(
        accuracy=learned.card.test["accuracy"],
        num_judged=len(judged),
        best_in_group=sum(best for best, _ in judged) / len(judged),
        by_chance=sum(chance for _, chance in judged) / len(judged),
        seconds=round(time.monotonic() - started, 1),
        gallery=str(out / "gallery.html"),
        model=str(model),
    )
    told = {**asdict(result), "gallery": "gallery.html", "model": model.name}
    about = {"nicegnn": nicegnn.__version__, "demo": config.to_dict(), "result": told}
    write_json(out / "demo.json", about)
    return result


def _has(smiles: str, pattern: Any) -> bool:
    return bool(parse_smiles(smiles).HasSubstructMatch(pattern))


def _write(path: Path, smiles: Sequence[str], labels: Sequence[str]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["smiles", "label"])
        writer.writerows(zip(smiles, labels, strict=True))


def _judge(
    molecule: dict[str, Any], bonds: Sequence[dict[str, Any]], pattern: Any
) -> tuple[bool, float]:
    """Returns whether the best bond lies in the group, and which share of the bonds do."""
    matches = [set(one) for one in molecule_of(molecule, bonds).GetSubstructMatches(pattern)]
    inside = [any({bond["atom_a"], bond["atom_b"]} <= one for one in matches) for bond in bonds]
    best = min(range(len(bonds)), key=lambda number: int(bonds[number]["rank"]))
    return inside[best], sum(inside) / len(inside)
