"""Steps that can be interrupted: what is taken, kept and resumed, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from nicegnn.errors import StoreError
from nicegnn.optimisation import CHECKPOINT_EVERY, History, batch_of_step, descend, run_steps
from nicegnn.store import load_tensors


class Walk:
    """A number that each step moves by the step's number; with momentum, by half the last move too.

    Args:
        stop: step at which the run is interrupted.
    """

    def __init__(self, stop: int | None = None) -> None:
        self.net = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(self.net.weight)
        self.optimiser = torch.optim.SGD(self.net.parameters(), lr=1.0, momentum=0.5)
        self.stop = stop
        self.taken: list[int] = []

    def step(self, number: int) -> dict[str, float]:
        if number == self.stop:
            self.net.weight.data += 100  # half of a step, which must not be kept
            raise KeyboardInterrupt
        self.taken.append(number)
        descend(-number * self.net.weight.sum(), list(self.net.parameters()), self.optimiser)
        return {"place": float(self.net.weight.detach())}

    def run(self, num_steps: int, checkpoint: Path | None = None, **identity: int) -> History:
        return run_steps(
            self.step,
            num_steps,
            self.net,
            self.optimiser,
            title="Walking",
            identity={"seed": 0, "settings": {"pace": 1} | identity},
            progress=False,
            checkpoint=checkpoint,
        )


def test_steps_by_hand() -> None:
    """Moves 0, 1, 2 + 1/2, 3 + 5/4."""
    walk = Walk()
    assert walk.run(4) == [{"place": place} for place in (0.0, 1.0, 3.5, 7.75)]
    assert walk.taken == [0, 1, 2, 3]


@pytest.mark.parametrize("stop", [0, 3, CHECKPOINT_EVERY, CHECKPOINT_EVERY + 2])
def test_interrupted_run_goes_on_from_its_last_whole_step(tmp_path: Path, stop: int) -> None:
    file, num_steps = tmp_path / "walk.ckpt", CHECKPOINT_EVERY + 5
    expected = Walk().run(num_steps)
    with pytest.raises(KeyboardInterrupt):
        Walk(stop).run(num_steps, file)
    assert len(load_tensors(file, "fit")[1]["history"]) == stop
    walk = Walk()
    assert walk.run(num_steps, file) == expected
    assert walk.taken == list(range(stop, num_steps))
    again = Walk()
    assert again.run(num_steps, file) == expected
    assert again.taken == []  # nothing is left to do
    assert torch.equal(again.net.weight, walk.net.weight)


def test_checkpoint_is_written_now_and_then(tmp_path: Path) -> None:
    """A run that is killed, not interrupted, leaves what was written last."""
    file, seen = tmp_path / "walk.ckpt", []

    class Watched(Walk):
        def step(self, number: int) -> dict[str, float]:
            seen.append(file.exists())
            return super().step(number)

    Watched().run(CHECKPOINT_EVERY + 2, file)
    assert seen == [False] * CHECKPOINT_EVERY + [True] * 2


def test_checkpoint_of_another_run_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "walk.ckpt"
    Walk().run(2, file)
    with pytest.raises(StoreError, match=r"these differ: settings\.pace\)"):
        Walk().run(4, file, pace=2)
    with pytest.raises(StoreError, match=r"these differ: settings\.breath\)"):
        Walk().run(4, file, breath=1)


def test_an_epoch_visits_each_graph_once_in_a_new_order() -> None:
    steps = [batch_of_step(12, 4, seed=5, step=step) for step in range(6)]
    first, second = torch.cat(steps[:3]).tolist(), torch.cat(steps[3:]).tolist()
    assert sorted(first) == sorted(second) == list(range(12))
    assert first != second
    assert batch_of_step(12, 4, seed=5, step=4).tolist() == steps[4].tolist()
    assert batch_of_step(12, 4, seed=6, step=0).tolist() != steps[0].tolist()


def test_a_batch_is_never_larger_than_the_data() -> None:
    assert sorted(batch_of_step(3, 8, seed=0, step=7).tolist()) == [0, 1, 2]
    assert (
        batch_of_step(5, 2, seed=0, step=1).numel() == 2
    )  # the fifth graph is left out of this epoch


def test_descending_touches_the_given_parameters_alone() -> None:
    ours, theirs, unused = (nn.Parameter(torch.tensor([2.0])) for _ in range(3))
    theirs.grad = torch.tensor([7.0])
    optimiser = torch.optim.SGD([ours, unused], lr=0.5)

    def loss() -> Tensor:
        return (ours * theirs).sum()

    descend(loss(), [ours, unused], optimiser)
    assert (ours.item(), theirs.item(), unused.item()) == (1.0, 2.0, 2.0)
    assert ours.grad is None
    assert theirs.grad.item() == 7.0
