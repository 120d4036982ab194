"""Use NICE as an algorithm of torch_geometric.explain, with PyG's own metrics."""

import torch
from torch_geometric.explain import Explainer, fidelity, unfaithfulness

from nicegnn import NICEAlgorithm
from nicegnn.target.zoo import GIN
from nicegnn_lab.datasets.generator import generate_dataset

graphs = generate_dataset("benzene", 50, seed=0)
torch.manual_seed(0)
model = GIN(graphs[0].x.size(1), 2)
explainer = Explainer(
    model,
    algorithm=NICEAlgorithm(),
    explanation_type="model",
    edge_mask_type="object",
    model_config={
        "mode": "multiclass_classification",
        "task_level": "graph",
        "return_type": "raw",
    },
)
explanation = explainer(graphs[0].x, graphs[0].edge_index)
print(explanation)
print("fidelity+ and fidelity-:", fidelity(explainer, explanation))
print("unfaithfulness:", unfaithfulness(explainer, explanation, top_k=10))
