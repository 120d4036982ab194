"""Use NICE as an algorithm of torch_geometric.explain, with PyG's own metrics."""

from torch_geometric.explain import Explainer, fidelity, unfaithfulness

from nicegnn import NICEAlgorithm, pretrained

loaded = pretrained.load("benzene")
graph = loaded.featurizer("CC(=O)Nc1ccc(O)cc1")
explainer = Explainer(
    loaded.model,
    algorithm=NICEAlgorithm(background=loaded.background),
    explanation_type="model",
    edge_mask_type="object",
    model_config={
        "mode": "multiclass_classification",
        "task_level": "graph",
        "return_type": "raw",
    },
)
explanation = explainer(graph.x, graph.edge_index, edge_attr=graph.edge_attr)
print(explanation)
print("fidelity+ and fidelity-:", fidelity(explainer, explanation))
print("unfaithfulness:", unfaithfulness(explainer, explanation, top_k=10))
