"""Train a GNN on generated molecules, explain new ones, judge that, write a page (`make demo`)."""

import argparse
from html import escape
from pathlib import Path

import torch
from torch_geometric.data import Batch

from nicegnn import NICE
from nicegnn.seeding import SeededWeights
from nicegnn.target.training import TrainConfig, accuracy_of, train_model
from nicegnn.target.zoo import make_model
from nicegnn_lab.datasets.generator import GENERATED_TASKS, generate_dataset
from nicegnn_lab.metrics.agreement import Truth, truth_metrics
from nicegnn_lab.metrics.ranking import graph_sum

PAGE = '<!doctype html><html lang="en"><meta charset="utf-8"><title>{0}</title><h1>{0}</h1>'

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--task", choices=GENERATED_TASKS, default="benzene")
parser.add_argument("--num", type=int, default=1000, help="molecules to train on")
parser.add_argument("--epochs", type=int, default=40)
parser.add_argument("--out", type=Path, default=Path("demo-output"))
asked = parser.parse_args()
torch.set_num_threads(1)  # more threads slow small graphs down

num_new = max(20, asked.num // 10)
print(f"1/3 Generating {asked.num + num_new} molecules for {asked.task} ...")
graphs = generate_dataset(asked.task, asked.num + num_new, seed=0)
new, valid, train = graphs[:num_new], graphs[num_new : 3 * num_new], graphs[3 * num_new :]

print("2/3 Training a GINE, which is not told where the label comes from ...")
with SeededWeights(0):
    sizes = {"hidden_size": 32, "num_layers": 3, "edge_size": new[0].edge_attr.size(1)}
    model = make_model("gine", new[0].x.size(1), 2, **sizes)
config = TrainConfig(learning_rate=0.003, batch_size=64, epochs=asked.epochs, patience=10)
train_model(model, train, valid, config, progress=False)

print(f"3/3 Explaining {num_new} new molecules ...")
batch, nice = Batch.from_data_list(new), NICE(model, background=train)
out = nice.explain(batch)
judged = (batch.y == 1) & (out.prediction.argmax(1) == 1)  # [B]
if not judged.any():
    raise SystemExit(f"The model finds no {asked.task}. Name more --epochs, or a larger --num.")
is_true = (out.bonds.sum(batch.edge_truth.double()) > 0).double()  # [M]
best = torch.zeros(num_new).scatter_reduce(0, out.bonds.batch, out.bond_loss, "amax")
is_best = (out.bond_loss == best[out.bonds.batch]).double()  # equally good ones share a place
home = out.bonds.batch
hit = graph_sum(is_best * is_true, home, num_new) / graph_sum(is_best, home, num_new)
chance = graph_sum(is_true, home, num_new) / torch.bincount(home)
area = truth_metrics(out.bond_loss, out.bonds, Truth.from_graphs(batch))["roc_auc"]
text = (
    f"The model is right on {accuracy_of(model, new):.1%} of new molecules. In {int(judged.sum())} "
    f"of label 1, the best bond is a true one in {hit[judged].mean():.1%} (by chance "
    f"{chance[judged].mean():.1%}); ROC AUC of true bonds {area[judged].nanmean():.3f}."
)
print(text)

title = f"Which bonds does the model need to see {asked.task}?"
shown = Batch.from_data_list([new[n] for n in judged.nonzero().view(-1)[:6].tolist()])
pictured = nice.explain(shown)
truth = pictured.bonds.sum(shown.edge_truth.double()) > 0
picture = pictured.draw(title=title, truth=truth)
picture.save(asked.out / "picture.png")
page = f"{PAGE.format(escape(title))}\n<p>{escape(text)}</p>\n{picture.svg}\n</html>\n"
(asked.out / "page.html").write_text(page, encoding="utf-8")
print(f"Look at {asked.out / 'page.html'}")
