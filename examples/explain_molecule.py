"""Explain one molecule: train on generated ones, explain a new SMILES, write a picture."""

import torch

from nicegnn import NICE
from nicegnn.target.training import TrainConfig, train_model
from nicegnn.target.zoo import GINE
from nicegnn_lab.datasets.generator import generate_dataset

graphs = generate_dataset("benzene", 400, seed=0)
torch.manual_seed(0)
model = GINE(graphs[0].num_node_features, 2, edge_size=4)
model.featurizer = "elements"  # how its graphs were made: it can be asked by SMILES
train_model(model, graphs[:350], graphs[350:], TrainConfig(batch_size=64, epochs=15))

out = NICE(model, background=graphs).explain("CC(=O)Nc1ccc(O)cc1")  # paracetamol
print(out.summary())
print("written:", out.draw(title="Paracetamol").save("paracetamol.svg"))
