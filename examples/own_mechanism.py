"""Put a mechanism of your own in the place of exchange."""

from torch import Tensor

from nicegnn import NICE, Site, pretrained


class Reversal:
    """Mixes each message with itself read backwards: the same norm, another meaning.

    It looks at one edge at a time, so a graph's scores do not depend on its batch.
    """

    is_random = False

    def __call__(self, message: Tensor, gate: Tensor, site: Site) -> Tensor:
        rho = gate.unsqueeze(1)
        return rho * message + (1 - rho) * message.flip(1)


model = pretrained.load("benzene").model
out = NICE(model, mechanism=Reversal()).explain("Cc1ccccc1")
print(out.summary())
