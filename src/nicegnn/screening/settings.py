"""Settings of commands about molecules: a field is an option, and its comment the help."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from nicegnn.config import Count, NotNegative, Positive, Settings, Whole

Task = Literal["classification", "binary", "regression"]
MOST_ATOMS = 1000  # of a molecule; time of its picture grows with their third power


@dataclass(frozen=True)
class ModelConfig(Settings):
    """Which model is explained, and how; empty words stand for what the model brings itself."""

    model: str = "mutagenicity"  # name, file, chemprop:PATH, admet:ENDPOINTS, module:name
    column: str = ""  # task of a Chemprop model, as in the table that it was trained on
    trust: bool = False  # the file of a Chemprop model may run code when it is read
    featurizer: str = ""  # how SMILES become graphs: a name, or your module:function
    background: str = ""  # file of molecules like those that such a model was trained on
    task: Task = "classification"  # of a module:name; binary has one logit
    classes: tuple[str, ...] = ()  # name of a class, in the order of its outputs; repeat
    explainer: str = ""  # name, see `nicegnn explainers`
    device: str = "cpu"  # what computes: cpu or cuda
    seed: int = 0  # seed of everything random


@dataclass(frozen=True)
class OutputConfig(Settings):
    """What ``nicegnn explain`` makes of its rows."""

    format: Literal["csv", "parquet", "rows"] = "csv"  # of tables; rows: shards alone, for many
    svg: bool = False  # one picture file per molecule
    sdf: bool = False  # structures with the numbers of their atoms and bonds
    xlsx: bool = False  # a spreadsheet with pictures
    gallery: Whole = 2000  # most molecules with a picture in gallery and spreadsheet
    substructure: tuple[str, ...] = ()  # flag for a group: NAME=SMARTS, or its name; repeat


@dataclass(frozen=True)
class EngineConfig(Settings):
    """Where molecules are explained; nothing in the rows depends on it."""

    workers: Whole = 0  # processes, or shards at a time on Ray; 0: as many as are worth while
    ray: str = ""  # address of a Ray cluster: auto, host:port, or local to start one
    gpus: NotNegative = 1.0  # share of a GPU that a shard takes on Ray, with the device cuda


@dataclass(frozen=True)
class RunConfig(Settings):
    """All settings of ``nicegnn explain``."""

    molecules: tuple[str, ...] = ()  # SMILES in quotes, or a file such as .csv, .sdf, .xlsx
    smiles_column: str = ""  # column of the SMILES; by default found by its name
    id_column: str = ""  # column with names of molecules; by default id or name, else the row
    atoms: bool = True  # score atoms too, which takes twice as long
    student: Literal["no", "yes"] = "no"  # scores by the explainer's student, far faster
    max_atoms: Count = MOST_ATOMS  # larger molecules are rejected
    shard_size: Count = 256  # molecules of one file; what a kill can lose, for each worker
    model: ModelConfig = field(default_factory=ModelConfig)
    output: OutputConfig = field(default_factory=OutputConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)


@dataclass(frozen=True)
class LearnConfig(Settings):
    """How ``nicegnn train`` trains a model on a file of molecules."""

    molecules: str = ""  # file of molecules with labels
    smiles_column: str = ""  # column of the SMILES; by default found by its name
    label: tuple[str, ...] = ()  # column of the labels or values; repeat: several share a model
    task: Literal["auto", "classification", "regression"] = "auto"  # auto: as the column looks
    kind: Literal["gin", "gine"] = "gine"  # gin reads no bond features
    featurizer: Literal["rich", "elements"] = "rich"  # how SMILES become graphs
    split: Literal["scaffold", "random"] = "scaffold"  # of the held-out molecules
    hidden_size: Count = 32  # width of the layers
    num_layers: Count = 3  # message-passing layers
    epochs: Count = 100  # most epochs
    batch_size: Count = 128  # graphs per step
    learning_rate: Positive = 0.003  # step size of Adam
    teach: bool = False  # also teach a student, for very many molecules
    question: str = ""  # what it predicts, in words
    classes: tuple[str, ...] = ()  # name of a class, in the order of the labels; repeat
    unit: str = ""  # unit of a value
    data: str = ""  # where the molecules come from; by default the file's name
    note: str = ""  # what else a reader of the card must know
    device: str = "cpu"  # what computes: cpu or cuda
    seed: int = 0  # seed of split, weights and order
