"""Explain one molecule: train on generated ones, explain a new SMILES, write a picture."""

import torch

from nicegnn import NICE
from nicegnn.molecule.smiles import ATOMS_GRAPHXAI, molecule_graph
from nicegnn.target.training import TrainConfig, train_classifier
from nicegnn.target.zoo import GINE
from nicegnn_lab.datasets.generator import generate_dataset

graphs = generate_dataset("benzene", 800, seed=0)
torch.manual_seed(0)
model = GINE(len(ATOMS_GRAPHXAI), 2, edge_size=4)
train_classifier(model, graphs[:700], graphs[700:], TrainConfig(batch_size=64, epochs=15))

molecule = molecule_graph("CC(=O)Nc1ccc(O)cc1")  # paracetamol
out = NICE(model).explain(molecule)  # without fit(): the boundary is found for this graph alone
print(out.summary())
print("written:", out.draw(title="Paracetamol").save("paracetamol.svg"))
