"""What `fuzz.py` tries and checks: odd values and graphs, models, files, commands."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import random
import sys
import tempfile
import warnings
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.nn import GCNConv, global_add_pool

from nicegnn import NICE, Explanation, NICEConfig, TeachConfig
from nicegnn.cli.main import main
from nicegnn.errors import NicegnnError
from nicegnn.molecule.featurizers import FEATURIZERS
from nicegnn.pretrained.model_file import ModelCard, save_model
from nicegnn.store import load_tensors
from nicegnn.target.zoo import make_model

WIDTH, EDGE_WIDTH = FEATURIZERS["elements"]("C").num_node_features, 4
SMILES = (
    *("ClCCl", "O=C=O", "COC", "CSC", "CC", "CC(C)(C)C", "c1ccccc1", "Cc1ccc(C)cc1", "C1CC1"),
    *("CC(=O)Nc1ccc(O)cc1", "[Na+].[Cl-]", "C", "N#N", "OC(=O)C(O)=O", "C[N+](C)(C)C", "FC(F)F"),
)
SIGNS = "CNOSPFIBclnos[]()=#+-@/\\.%0123456789*:$~ \0é\udcff"
QUICK: dict[str, Any] = {"boundary__num_draws": 2, "boundary__batch_size": 4}
QUICK |= {"boundary__steps": 2, "attribution__num_draws": 2, "attribution__num_nodes": 2}
FAULTS = ("raises", "nothing", "words", "pair", "nan", "flat", "deep", "whole")
JUNK: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 99, 2**63, 2**70, -(2**70), 0.5, 1.5, 1e308, 1 + 1j),
    *(float("nan"), float("inf"), "", "no", "auto", "1", "é\0", "\udcff", b"x", "cpu", "nc", "CCO"),
    *((), [], {}, set(), {0}, {"a": 1}, [0], [0, 1], (0, 0), [[0], [1, 2]], ["a"], [None], [1.5]),
    *(torch.tensor(1), torch.tensor([0, 1]), torch.tensor(1.0), torch.tensor([]), range(2)),
    *(torch.tensor(1 + 1j), torch.zeros(2, 2).long(), torch.tensor([True, False]), np.int64(1)),
    *(torch.zeros(1, device="meta"), torch.eye(2).to_sparse(), np.array([0, 1]), np.array("a")),
    *(np.float32(0), np.bool_(True), object, object(), len, Path("x"), iter(()), ...),
    *(NICEConfig(), nn.Linear(1, 1), Data(), Exception("x"), torch.int64, torch.device("meta")),
)


class Own(nn.Module):
    """A model of a user, for graphs or nodes, with dropout, and with a fault."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault, self.first = fault, GCNConv(WIDTH, 4)
        self.second, self.drop = GCNConv(4, 3), nn.Dropout(0.5)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Any:
        h = self.second(self.drop(self.first(x, edge_index).tanh()), edge_index)
        out = h if self.fault == "node" or batch is None else global_add_pool(h, batch)
        if self.fault == "raises":
            raise KeyError("mine")
        faults = {"nothing": None, "words": "x", "pair": (out, h), "nan": out * torch.nan}
        faults |= {"flat": out.view(-1), "deep": out[None, None], "whole": out.long()}
        return faults.get(self.fault, out)


class World:
    """What all cases share; nothing of it may change."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        torch.manual_seed(0)
        shape: dict[str, Any] = {"hidden_size": 8, "num_layers": 2}
        edges = shape | {"edge_size": EDGE_WIDTH}
        made = {name: make_model(name, WIDTH, 2, **shape) for name in ("gin", "gcn", "sage")}
        made |= {n: make_model(n, WIDTH, 3, **edges) for n in ("gat", "gine", "transformer")}
        self.models: dict[str, tuple[nn.Module, dict[str, Any]]] = {
            **{name: (model, {}) for name, model in made.items()},
            "value": (make_model("gin", WIDTH, 1, **shape), {"mode": "regression"}),
            "binary": (make_model("gcn", WIDTH, 1, **shape), {"mode": "binary"}),
            "values": (make_model("gcn", WIDTH, 2, **shape), {"mode": "regression"}),
            "labels": (make_model("gin", WIDTH, 3, **shape), {"mode": "multilabel"}),
            **{name: (Own(name), {}) for name in ("node", *FAULTS)},
        }
        self.states = {name: dump(model) for name, (model, _) in self.models.items()}
        rng = random.Random(0)
        self.background = [graph(rng) for _ in range(6)]
        (folder / "few.csv").write_text("id,smiles\n=a,CCO\nb,C(\nc,Cc1ccccc1\n")

    @cached_property
    def known(self) -> dict[str, NICE]:
        """Explainers that are used again and again, beside new ones."""
        chosen = {name: self.models[name] for name in ("gin", "gat", "value", "labels")}
        return {n: NICE(m, background=self.background, **w) for n, (m, w) in chosen.items()}

    @cached_property
    def files(self) -> dict[str, tuple[dict[str, Tensor], dict[str, Any]]]:
        """Tensors and descriptions of whole files: two of explainers, one of a model."""
        model, paths = (
            self.models["gin"][0],
            [self.folder / f"{kind}.safetensors" for kind in "abc"],
        )
        NICE(model, background=self.background).save(paths[0])
        nice = NICE(model, NICEConfig.paper().with_(**QUICK), background=self.background)
        nice.fit(self.background, progress=False)
        nice.teach(self.background * 4, config=TeachConfig(epochs=1), progress=False)
        nice.save(paths[1])
        card = ModelCard(name="small", classes=("a", "b"), featurizer="elements")
        save_model(paths[2], model, card, nice.background)  # type: ignore[arg-type]
        kinds = {"plain": "nice", "taught": "nice", "model": "model"}
        read = zip(kinds.items(), paths, strict=True)
        return {name: load_tensors(path, kind) for (name, kind), path in read}


def dump(model: nn.Module) -> bytes:
    """Returns all that must stay as it is about a model."""
    parts = [(m.training, len(m._forward_hooks), sorted(vars(m))) for m in model.modules()]
    return repr(parts).encode() + b"".join(v.numpy().tobytes() for v in model.state_dict().values())


def graph(rng: random.Random) -> Data:
    """Returns a good graph, sometimes with isolated nodes, or without edges."""
    size = rng.randint(1, 7)
    pairs = {(rng.randrange(v), v) for v in range(1, size) if rng.random() < 0.9}
    ends = torch.tensor(sorted(pairs), dtype=torch.long).view(-1, 2).t()
    drawn = torch.Generator().manual_seed(rng.getrandbits(32))
    return Data(
        x=torch.randn(size, WIDTH, generator=drawn),
        edge_index=torch.cat([ends, ends.flip(0)], 1),
        edge_attr=torch.randn(len(pairs), EDGE_WIDTH, generator=drawn).repeat(2, 1),
    )


def strange(rng: random.Random, one: Data) -> Data:
    """Returns a graph with one thing that is odd or wrong."""
    x, edges, attr = one.x, one.edge_index, one.edge_attr
    odd: dict[str, list[Any]] = {
        "x": [x.double(), x.half(), x.long(), x.bool(), x + 0j, x.tolist(), x.numpy(), x[:, 0]],
        "edge_index": [edges.float(), edges.int(), edges - 1, edges + 1, edges[0], edges.t(), None],
        "edge_attr": [None, attr[:-1], attr * torch.nan, attr[:, 0], attr.double(), attr[:, :1]],
        rng.choice(["y", "pos", "smiles", "u", "ptr", "batch", "num_nodes"]): [rng.choice(JUNK)],
    }
    odd["x"] += [x[..., None], x[:, :2], x[:0], x * torch.nan, x * 1e30, x * 1e-30, x * 0, None]
    odd["x"] += [torch.cat([x, x], 1), x.to_sparse(), x.to("meta"), "x", x.repeat(2, 1)]
    odd["edge_index"] += [
        edges[:, ::2],
        edges.repeat(1, 2),
        edges[:, :0],
        edges.numpy(),
        [[0], [0]],
    ]
    odd["edge_index"] += [edges * 0, edges.repeat(2, 1), edges[:, :1] + 2**40, edges.to_sparse()]
    key, out = rng.choice([*odd]), one.clone()
    out[key] = rng.choice(odd[key])
    return out


def some_graphs(rng: random.Random) -> Any:
    """Returns graphs in any form, half of them good ones."""
    listed = [graph(rng) for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.35:
        place = rng.randrange(len(listed))
        listed[place] = strange(rng, listed[place])
    if rng.random() < 0.15:
        try:
            made = Batch.from_data_list(listed)
            key = rng.choice(["batch", "ptr", "edge_index"])
            odd = [made[key], made[key].flip(-1), made[key] + 1, None, rng.choice(JUNK)]
            made[key] = rng.choice(odd)
        except Exception:  # PyG takes no such graphs
            return listed
        return made
    forms = [tuple(listed), iter(listed), {"a": listed[0]}, HeteroData(), [listed, graph(rng)]]
    forms += [*JUNK, ["CC"]]
    return rng.choice(forms) if rng.random() < 0.1 else rng.choice([listed, listed, listed[0]])


def molecule(rng: random.Random) -> str:
    """Returns a SMILES with a few wrong signs."""
    text = list(rng.choice(SMILES))
    for _ in range(rng.randint(0, 3)):
        place = rng.randrange(len(text) + 1)
        text[place : place + rng.randint(0, 1)] = rng.choice(SIGNS)
    return "".join(text) * rng.choice([1, 1, 1, 1, 2])


def bad_tensor(rng: random.Random, value: Tensor) -> Tensor:
    """Returns a tensor that is not that of a file."""
    flat, real = value.reshape(-1), value.float()
    odd = [flat[:0], flat, value[..., None], torch.zeros(3), real * torch.nan, real + torch.inf]
    return rng.choice([*odd, value.double(), value.half(), value.bool(), real + 0j, value.long()])


def text_of(data: Data) -> str:
    """Returns all that a graph holds."""
    return repr(sorted(data.to_dict().items(), key=str))


def spoil_parts(rng: random.Random, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    """Changes one thing about the tensors or the description of a file."""
    key, what = rng.choice([*tensors]), rng.randrange(5)
    if what == 0:
        del tensors[key]
    elif what == 1:
        tensors[rng.choice(["", "more", f"{key}.x", key.partition(".")[0]])] = torch.zeros(1)
    elif what == 2:
        tensors[key] = bad_tensor(rng, tensors[key])
    else:
        inner = rng.choice([about, *tables_in(about)])
        field = rng.choice([*inner, "more"])
        odd: tuple[Any, ...] = (None, True, -1, 0, 3, 1e400, "x", [], {}, [1], {"a": 1}, 2**70)
        inner[field] = rng.choice(odd)
        if rng.random() < 0.4:
            del inner[field]


def spoiled_bytes(rng: random.Random, whole: bytes) -> bytes:
    """Returns the content of a file after a cut, a changed bit, or another content."""
    place, changed = rng.randrange(len(whole)), bytearray(whole)
    changed[place] ^= 1 << rng.randrange(8)
    odd = [b"", b"{}", b"[]", b"null", b"\xff\xfe", b'{"shards": -1}', b'{"shards": 1e9}']
    return rng.choice([whole, whole[:place], whole[place:], bytes(changed), *odd])


def tables_in(table: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the tables inside a table that are not empty."""
    found = [one for one in table.values() if isinstance(one, dict) and one]
    return [*found, *(deeper for one in found for deeper in tables_in(one))]


# --- checks and commands -------------------------------------------------------------------------


class Wrong(Exception):
    """An outcome that cannot be right."""


def check(is_right: object, words: str) -> None:
    if not bool(is_right):
        raise Wrong(words)


def check_numbers(out: Explanation) -> None:
    """Raises `Wrong` unless the numbers of an explanation can be."""
    check(out.bond_score.isfinite().all(), "scores are not finite")
    check(out.prediction.isfinite().all(), "predictions are not finite")
    if out.unit == "odds":
        check((out.bond_score.abs() <= 1 + 1e-6).all(), "a share of the odds is above 1")
    check(not (out.bond_stderr < 0).any(), "a standard error is negative")
    check(out.bond_score.numel() == out.bond_index.size(1), "not one score per bond")
    check(not out.bond_index.numel() or out.bond_index.max() < out.ptr[-1], "a bond leaves")
    is_known = out.unit == "own" or (out.target >= 0).all()  # values may be explained together
    check(is_known, "an explained class is negative")
    if out.atom_score is not None:
        is_mixed = (out.edge_batch.diff() < 0).any()  # such a batch cannot be cut into its graphs
        check(is_mixed or out.atom_score.isfinite().all(), "scores of atoms are not finite")
        check(out.atom_score.numel() == out.ptr[-1], "not one score per atom")
    if out.trust is not None:
        known = out.trust.chance[~out.trust.chance.isnan()]
        check(((known >= 0) & (known <= 1)).all(), "a chance is no chance")


def close(a: Explanation, b: Explanation, words: str) -> None:
    same = a.bond_score.shape == b.bond_score.shape
    same = same and torch.allclose(a.bond_score, b.bond_score, rtol=1e-3, atol=1e-4)
    check(same, f"{words}: other scores")


def settings(rng: random.Random) -> NICEConfig:
    """Returns a configuration that is valid and quick."""
    choices: dict[str, list[Any]] = {
        "mechanism": ["exchange", "nc", "em"],
        "anchor": ["propagated", "clean"],
        "undirected": [True, False],
        "batch_size": [1, 2],
        "chunk_edges": [1, 40],
    }
    asked = {key: rng.choice(values) for key, values in choices.items() if rng.random() < 0.15}
    return NICEConfig().with_(**QUICK, **asked)


def command(words: list[str]) -> None:
    """Runs a command in this process; a wrong word or a file that is refused is a named error."""
    said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    code: Any = 0
    typed = mock.patch.object(sys, "argv", ["nicegnn", *words])
    with typed, contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as stop:
            code = stop.code
    said.flush()
    text = said.buffer.getvalue().decode()
    check("Traceback" not in text, "a traceback")
    check(code in (0, None, 1, 2, 3), f"it ended with {code}")
    if code:
        check(text.strip(), "it ended without a reason")
    if code in (1, 2):
        raise NicegnnError(text)


@contextlib.contextmanager
def quiet_world() -> Iterator[World]:
    """Yields a world in an empty folder, without warnings and bars."""
    here, said = Path.cwd(), io.StringIO()
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    quiet = warnings.catch_warnings(action="ignore")
    with quiet, tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(said):
        world = World(Path(folder))
        Path(folder, "work").mkdir()
        os.chdir(Path(folder, "work"))
        try:
            yield world
        finally:
            os.chdir(here)
            logging.disable(logging.NOTSET)
