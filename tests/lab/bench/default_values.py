"""Default settings of every explainer: keys of stored cells hold what differs from them.

A default that changes must raise the explainer's `defaults_version`, or stored cells would be taken
for cells with the new default. New settings may be added at any time.
"""

from __future__ import annotations

from typing import Any

Values = dict[str, Any]

NICE: Values = {
    "batch_size": 256,
    "undirected": True,
    "boundary__objective": "budget",
    "boundary__anchor": "propagated",
    "boundary__num_draws": 16,
    "boundary__fit_draws": 16,
    "boundary__degradation": "margin",
    "boundary__beta": 0.1,
    "boundary__budget_low": 0.05,
    "boundary__budget_high": 0.95,
    "boundary__penalty": 1.0,
    "boundary__risk_target": 0.05,
    "boundary__contrast": 0.0,
    "boundary__normalise_risk": True,
    "boundary__start": 0.95,
    "boundary__layers": "all",
    "boundary__bond_ends": "symmetric",
    "boundary__standardise": True,
    "boundary__graph_context": True,
    "boundary__edge_features": False,
    "boundary__class_gates": True,
    "boundary__classes": [],
    "boundary__hidden_size": 64,
    "boundary__learning_rate": 0.01,
    "boundary__schedule": "linear",
    "boundary__steps": 200,
    "boundary__batch_size": 512,
    "boundary__noise_period": 16,
    "boundary__max_graphs": 50000,
    "boundary__graph_learning_rate": 0.2,
    "boundary__graph_steps": 80,
    "attribution__path": "bond",
    "attribution__anchor": "propagated",
    "attribution__num_draws": 4,
    "attribution__num_nodes": 8,
    "attribution__quadrature": "gauss",
    "attribution__draws": "fresh",
    "attribution__antithetic": True,
    "attribution__context": "corrupted",
    "attribution__degradation": "signed-margin",
    "attribution__beta": 0.1,
    "attribution__take_out": True,
    "score": "both",
}
#: The paper's method, as changes of the default.
PAPER: Values = NICE | {
    "attribution__num_draws": 16,
    "boundary__objective": "penalty",
    "boundary__anchor": "clean",
    "boundary__degradation": "log-prob",
    "boundary__normalise_risk": False,
    "boundary__start": 0.5,
    "boundary__layers": "last",
    "boundary__bond_ends": "ordered",
    "boundary__standardise": False,
    "boundary__graph_context": False,
    "boundary__class_gates": False,
    "boundary__learning_rate": 0.001,
    "boundary__schedule": "constant",
    "boundary__steps": 500,
    "boundary__batch_size": 256,
    "boundary__noise_period": 0,
    "attribution__path": "joint",
    "attribution__anchor": "clean",
    "attribution__num_nodes": 16,
    "attribution__quadrature": "riemann",
    "attribution__antithetic": False,
    "attribution__degradation": "log-prob",
    "attribution__take_out": False,
    "score": "big",
}
CONVERGED: Values = {"attribution__num_draws": 64, "attribution__quadrature": "gauss"}
PROPAGATED: Values = {"boundary__anchor": "propagated", "attribution__anchor": "propagated"}
#: Of every other explainer.
RIVAL: Values = {"batch_size": 256, "undirected": True, "num_draws": 4}
#: Of explainers that learn a mask by concrete draws.
CONCRETE: Values = RIVAL | {
    "first_temperature": 5.0,
    "last_temperature": 1.0,
    "hidden_size": 64,
    "layers": "last",
}
CONFIDENT: Values = CONCRETE | {
    "learning_rate": 0.005,
    "steps": 600,
    "fit_batch_size": 128,
    "size": 0.0003,
    "entropy": 0.3,
    "agreement": 0.1,
    "symmetrise": True,
}

#: Version and default settings by explainer.
DEFAULTS: dict[str, tuple[int, Values]] = {
    "nice": (3, NICE),
    "nice-instant": (3, NICE | {"score": "big"}),
    "nice-student": (3, NICE),
    "nice-paper": (2, PAPER),
    "nice-paper-converged": (2, PAPER | CONVERGED),
    "nice-paper-tuned": (2, PAPER),
    "nice-propagated": (2, PAPER | PROPAGATED),
    "nice-propagated-converged": (2, PAPER | PROPAGATED | CONVERGED),
    "random": (1, RIVAL),
    "ground-truth": (1, RIVAL),
    "saliency": (1, RIVAL | {"absolute": True}),
    "guided-backprop": (1, RIVAL | {"absolute": False}),
    "integrated-gradients": (1, RIVAL | {"num_nodes": 16, "quadrature": "auto"}),
    "gnnexplainer": (
        1,
        RIVAL
        | {"steps": 300, "learning_rate": 0.01, "size": 0.005, "entropy": 1.0, "num_starts": 1},
    ),
    "pgexplainer": (
        1,
        CONCRETE
        | {
            "learning_rate": 0.003,
            "steps": 300,
            "fit_batch_size": 128,
            "size": 0.005,
            "entropy": 1.0,
            "margin": 0.01,
            "symmetrise": True,
        },
    ),
    "refine": (
        1,
        RIVAL
        | {
            "learning_rate": 0.005,
            "steps": 300,
            "fit_batch_size": 128,
            "hidden_size": 50,
            "size": 0.0001,
            "entropy": 0.01,
            "contrast": 0.02,
            "contrast_temperature": 0.1,
            "ratio": 0.4,
            "fine_tune_steps": 20,
            "fine_tune_rate": 0.0002,
            "symmetrise": True,
        },
    ),
    "d4explainer": (
        1,
        RIVAL
        | {
            "num_draws": 50,
            "learning_rate": 0.001,
            "steps": 150,
            "fit_batch_size": 32,
            "pairs": "bonds",
            "max_nodes": 60,
            "num_levels": 10,
            "max_level": 0.4,
            "alpha": 0.5,
            "positive_weight": 2.5,
            "hidden_size": 64,
            "num_blocks": 6,
            "sign": "removed",
            "chunk_pairs": 250000,
        },
    ),
    "proxyexplainer": (
        1,
        CONCRETE
        | {
            "learning_rate": 0.003,
            "steps": 300,
            "fit_batch_size": 64,
            "size": 0.005,
            "entropy": 1.0,
            "pairs": "auto",
            "max_nodes": 60,
            "generator_learning_rate": 0.003,
            "generator_steps": 10,
            "generator_sizes": [128, 128, 64],
            "latent_size": 64,
            "identity_size": 32,
            "noise_scale": 1.0,
        },
    ),
    "confexplainer": (1, CONFIDENT),
    "confexplainer-supervised": (1, CONFIDENT | {"agreement": 1.0}),
    "graphmask": (
        1,
        RIVAL
        | {
            "steps": 100,
            "learning_rate": 0.01,
            "penalty": 5.0,
            "allowance": 0.03,
            "multiplier_rate": 0.01,
            "multiplier_start": 0.55,
        },
    ),
    "occlusion": (1, RIVAL),
    "subgraphx": (1, RIVAL | {"num_orders": 16, "antithetic": True}),
}
