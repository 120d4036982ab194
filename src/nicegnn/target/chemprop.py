"""Chemprop's MPNN as a model of graphs: its message sites, its head, and graphs of its datapoints.

The message of a directed bond is its state as it is sent, before every sum over bonds:

.. math:: H_e^{(0)}, \\dots, H_e^{(T-1)} \\quad\\text{(bonds)}, \\qquad
    [H_e^{(0)} \\| E_e], \\dots, [H_e^{(T-2)} \\| E_e],\\; H_e^{(T-1)} \\quad\\text{(atoms)}

Symbols: :math:`H_e^{(t)}` -> ``H``, ``[E, F]``; :math:`E_e` -> features of the bond, ``bmg.E``;
:math:`T` -> ``depth``, so there are T sends. The state that a bond gets back from its reverse, and
that D-MPNNs subtract, is the damaged one: a bond whose messages are zero is one that is not there.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from nicegnn.errors import GraphError, TargetError
from nicegnn.molecule.featurizers import Featurizer
from nicegnn.target.message_layers import register_layer, unwrap
from nicegnn.target.output import Mode


class Sends(nn.Module):
    """Chemprop's message passing, which shows what it sends; the same numbers to the last bit."""

    keeps_states = False  # of nodes, from send to send

    def __init__(self, passing: Any) -> None:
        super().__init__()
        self.passing = passing
        self.joins_features = passing.W_h.in_features > passing.W_h.out_features  # atom passing

    def send(self, message: Tensor) -> Tensor:
        """Returns the messages of all directed bonds, ``[E, F]``; interventions change them."""
        return message

    def forward(self, bmg: Any, V_d: Tensor | None) -> Tensor:
        """Returns the states of atoms, ``[V, F]``, as ``passing(bmg, V_d)`` does."""
        passing: Any = self.passing
        bmg = passing.graph_transform(bmg)
        H_0 = passing.initialize(bmg)
        H = passing.tau(H_0)
        for _ in range(1, passing.depth):
            if passing.undirected:
                H = (H + H[bmg.rev_edge_index]) / 2
            sent = bmg
            if self.joins_features:  # message() sends [H || E]
                both, sent = self.send(torch.cat([H, bmg.E], dim=1)), copy(bmg)
                H, sent.E = both[:, : H.size(1)], both[:, H.size(1) :]
            else:
                H = self.send(H)
            H = passing.update(passing.message(H, sent), H_0)
        H = self.send(H)
        place = bmg.edge_index[1].unsqueeze(1).repeat(1, H.size(1))
        M = torch.zeros(bmg.V.size(0), H.size(1), dtype=H.dtype, device=H.device)
        M = M.scatter_reduce_(0, place, H, reduce="sum", include_self=False)
        out: Tensor = passing.finalize(M, bmg.V, V_d)
        return out


register_layer(Sends, "send")


class ChempropModel(nn.Module):
    """A Chemprop v2 ``MPNN`` that takes PyG graphs; it shares all weights and changes nothing.

    Outputs are logits, never probabilities, and values of a regression in their own unit, without
    their uncertainty. Several tasks are columns; ``column`` leaves out all others.
    """

    def __init__(self, mpnn: Any, *, column: int | None = None) -> None:
        super().__init__()
        _check_parts(mpnn)
        self.message_passing = Sends(mpnn.message_passing)
        self.agg, self.bn, self.X_d_transform = mpnn.agg, mpnn.bn, mpnn.X_d_transform
        self.predictor = mpnn.predictor
        self.mode, self.column = _mode_of(mpnn.predictor, column), column
        self.featurise = _featurizer_of(mpnn.message_passing)

    @property
    def featurizer(self) -> Featurizer:
        return Featurizer("chemprop", self._graph)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor,
        batch: Tensor,
        V_d: Tensor | None = None,
        X_d: Tensor | None = None,
    ) -> Tensor:
        """Returns logits or values, ``[B, C]``."""
        passing: Any = self.message_passing.passing
        predictor: Any = self.predictor
        bmg = SimpleNamespace(V=x, E=edge_attr, edge_index=edge_index, batch=batch)
        bmg.rev_edge_index = _reverse(edge_index, x.size(0))
        _check_width("features of atoms", x, passing.W_o.in_features - passing.W_h.out_features)
        extra = 0 if passing.W_d is None else passing.W_d.in_features - passing.W_o.out_features
        _check_width("descriptors of atoms (V_d)", V_d, extra)
        H = self.bn(self.agg(self.message_passing(bmg, V_d), batch))
        _check_width("descriptors of molecules (x_d)", X_d, predictor.input_dim - H.size(1))
        if X_d is not None:
            H = torch.cat([H, self.X_d_transform(X_d)], dim=1)
        return self._logits(H)

    def _logits(self, Z: Tensor) -> Tensor:
        """Returns logits, or values in their own unit (in evaluation mode they are), ``[B, C]``.

        Those of a Dirichlet are log(alpha) of classes, and log(alpha_1) - log(alpha_0) of a label.
        """
        predictor: Any = self.predictor
        out: Tensor = predictor(Z) if self.mode == "regression" else predictor.train_step(Z)
        is_dirichlet = "Dirichlet" in type(predictor).__name__
        out = out.log() if is_dirichlet else out
        if self.mode == "multiclass":
            return out[:, self.column or 0]
        if out.dim() == 3:  # a value comes before its uncertainty
            out = out[..., 1] - out[..., 0] if is_dirichlet else out[..., 0]
        return out if self.column is None else out[:, self.column : self.column + 1]

    def read_graphs(self, molecules: Any) -> Any:
        """Returns the graph or graphs of SMILES, RDKit molecules, datapoints, or a dataset."""
        source = getattr(molecules, "dataset", molecules)
        if isinstance(source, Data):
            return source
        if hasattr(source, "featurizer"):  # a dataset holds scaled features and descriptors
            names = [getattr(one, "name", None) for one in source.data]
            return [self._graph(source[place], name) for place, name in enumerate(names)]
        if isinstance(source, str) or hasattr(source, "mg") or not hasattr(source, "__iter__"):
            return self._graph(source)
        return [self._graph(item) for item in source]

    def _graph(self, item: Any, name: str | None = None) -> Data:
        if isinstance(item, Data):
            return item
        from nicegnn.molecule.smiles import parse_smiles, require_rdkit

        smiles, mg = name or getattr(item, "name", None), getattr(item, "mg", None)
        if mg is None:
            if isinstance(item, str):
                item, smiles = parse_smiles(item), item
            mol = getattr(item, "mol", item)
            if not isinstance(mol, require_rdkit().Mol):
                raise GraphError(
                    "Molecules must be SMILES, RDKit molecules, or Chemprop's datapoints or "
                    f"dataset (got {type(item).__name__}). Pass MoleculeDatapoint.from_smi(...)."
                )
            try:
                mg = self.featurise(mol, *(getattr(item, key, None) for key in ("V_f", "E_f")))
            except ValueError as error:
                raise GraphError(
                    "The model reads more features of atoms and bonds (V_f, E_f; Chemprop says: "
                    f"{error}). Pass MoleculeDatapoint objects with what it was trained on."
                ) from error
        as_number = partial(torch.as_tensor, dtype=next(self.parameters()).dtype)
        edge_index = torch.as_tensor(mg.edge_index, dtype=torch.long).view(2, -1)
        graph = Data(x=as_number(mg.V), edge_index=edge_index, edge_attr=as_number(mg.E))
        if (V_d := getattr(item, "V_d", None)) is not None:
            graph.V_d = as_number(V_d)
        if (x_d := getattr(item, "x_d", None)) is not None:
            graph.X_d = as_number(x_d).view(1, -1)
        if smiles:
            graph.smiles = smiles
        return graph


def _check_width(what: str, value: Tensor | None, wanted: int) -> None:
    width = 0 if value is None else value.size(1)
    if width != wanted:
        raise GraphError(
            f"This model reads {wanted} {what} (got {width}). Pass Chemprop's MoleculeDatapoint "
            "objects with what it was trained on."
        )


def adapted(model: nn.Module) -> nn.Module:
    """Returns a model that interventions reach: Chemprop's as `ChempropModel`, others unchanged."""
    inner = unwrap(model)
    kinds = type(inner).__mro__
    is_mpnn = any(kind.__module__.startswith("chemprop.models") for kind in kinds)
    return ChempropModel(inner) if is_mpnn else model


def _check_parts(mpnn: Any) -> None:
    """Raises `TargetError` for kinds of models whose pass is another one than what runs here."""
    from chemprop.models import MPNN, MulticomponentMPNN
    from chemprop.nn import AtomMessagePassing, BondMessagePassing
    from chemprop.nn.message_passing.base import _MessagePassingBase

    kind, name = type(mpnn), type(mpnn).__name__
    if not isinstance(mpnn, MPNN) or isinstance(mpnn, MulticomponentMPNN):
        raise TargetError(
            "A model of Chemprop must predict properties of one molecule at a time, not of atoms, "
            f"bonds or several components (got {name}). Train an MPNN on one component."
        )
    for own in ("forward", "fingerprint"):
        if getattr(kind, own) is not getattr(MPNN, own):
            raise TargetError(f"{name} must keep {own}() of MPNN. Put more into its predictor.")
    passing, kinds = mpnn.message_passing, (AtomMessagePassing, BondMessagePassing)
    if not isinstance(passing, kinds) or type(passing).forward is not _MessagePassingBase.forward:
        raise TargetError(
            "Message passing must be Chemprop's BondMessagePassing or AtomMessagePassing with "
            f"their forward() (got {type(passing).__name__}). Override its parts instead."
        )


def _mode_of(predictor: Any, column: int | None) -> Mode:
    from chemprop import nn as parts

    name, num = type(predictor).__name__, predictor.n_tasks
    if column is not None and not 0 <= column < num:
        raise TargetError(f"`column` must be a task from 0 to {num - 1} (got {column}).")
    if isinstance(predictor, parts.MulticlassClassificationFFN):
        if num > 1 and column is None:
            raise TargetError(
                f"{name} has {num} tasks of {predictor.n_classes} classes each. Pass one of them: "
                "nicegnn.target.chemprop.ChempropModel(mpnn, column=0)."
            )
        return "multiclass"
    if isinstance(predictor, parts.BinaryClassificationFFNBase):
        return "binary" if num == 1 or column is not None else "multilabel"
    return "regression"


def _featurizer_of(passing: Any) -> Callable[..., Any]:
    """Returns Chemprop's featuriser that makes as many features as a model reads."""
    from chemprop.featurizers import SimpleMoleculeMolGraphFeaturizer
    from chemprop.featurizers.atom import AtomFeatureMode, get_multi_hot_atom_featurizer
    from chemprop.featurizers.bond import MultiHotBondFeaturizer, RIGRBondFeaturizer

    hidden = passing.W_h.out_features
    num_atom = passing.W_o.in_features - hidden
    num_bond = passing.W_h.in_features - hidden or passing.W_i.in_features - num_atom
    kinds = {mode: get_multi_hot_atom_featurizer(mode) for mode in AtomFeatureMode}
    fitting = (mode for mode, atoms in kinds.items() if len(atoms) == num_atom)
    mode = next(fitting, AtomFeatureMode.V2)
    bonds = RIGRBondFeaturizer() if mode == AtomFeatureMode.RIGR else MultiHotBondFeaturizer()
    extra = num_atom - len(kinds[mode]), num_bond - len(bonds)  # V_f and E_f of datapoints
    return SimpleMoleculeMolGraphFeaturizer(kinds[mode], bonds, *extra)


def _reverse(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Returns the other direction of each directed bond, ``[E]``."""
    key = edge_index[0] * num_nodes + edge_index[1]
    back = edge_index[1] * num_nodes + edge_index[0]
    order = key.argsort()
    return order[torch.searchsorted(key[order], back).clamp(max=max(0, key.numel() - 1))]
