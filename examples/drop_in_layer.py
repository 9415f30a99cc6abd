"""One layer to drop in where an LSTM would stand.

A pulse of 20 samples starts a sequence of noise; after 1000 samples the network says which of four
heights it had. An LSTM has to carry the answer through 1000 nonlinear steps. A diagonal state space
layer is linear in time, and some of its modes forget slowly from the start.
"""

# %% The data: made on the fly
import time

import torch
from torch import Tensor, nn

from s4d_torch import S4D, parameter_groups

HEIGHTS, LENGTH = 4, 1000


def make_batch(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Sequences (count, LENGTH, 1) and the number of the height that each begins with."""
    height = torch.randint(HEIGHTS, (count,), generator=generator)
    u = 0.1 * torch.randn(count, LENGTH, generator=generator)
    u[:, :20] += height[:, None] - (HEIGHTS - 1) / 2
    return u[..., None], height


# %% Two networks that differ in one line
class Reader(nn.Module):
    """Linear map, a layer over time, and a linear map from its last output to the scores."""

    def __init__(self, layer: nn.Module, width: int = 32) -> None:
        super().__init__()
        self.encoder, self.layer, self.decoder = (
            nn.Linear(1, width),
            layer,
            nn.Linear(width, HEIGHTS),
        )

    def forward(self, u: Tensor) -> Tensor:
        y, _ = self.layer(self.encoder(u))  # both layers return the output and their state
        return self.decoder(y[:, -1])


torch.manual_seed(0)
NETWORKS = {
    "LSTM": Reader(nn.LSTM(32, 32, batch_first=True)),
    # step sizes for what is to be remembered: about 1 / dt samples
    "S4D-LegS": Reader(S4D(32, d_state=32, dt_min=0.0005, dt_max=0.05)),
    "S4D-Lin": Reader(S4D(32, d_state=32, dt_min=0.0005, dt_max=0.05, init="lin")),
}


# %% The same training for each; `parameter_groups` knows that A, B and dt want gentler steps
def train(network: nn.Module, steps: int = 60) -> tuple[float, float]:
    """The accuracy on new sequences, and the seconds that training took."""
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(parameter_groups(network, lr=0.005, weight_decay=0.01))
    began = time.perf_counter()
    for _ in range(steps):
        u, height = make_batch(32, generator)
        loss = nn.functional.cross_entropy(network(u), height)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    seconds = time.perf_counter() - began
    with torch.no_grad():
        u, height = make_batch(256, generator)
        return (network(u).argmax(1) == height).double().mean().item(), seconds


scores = {name: train(network) for name, network in NETWORKS.items()}
for name, (accuracy, seconds) in scores.items():
    print(f"{name:10} {100 * accuracy:5.1f} %  {seconds:5.1f} s")

# %% What the slowest modes remember
ssm = NETWORKS["S4D-LegS"].layer.ssm
memory = 1 / (-ssm.A.real * ssm.dt[:, None])  # in samples: the time after which a mode is at 1/e
print(f"modes forget after {memory.min():.0f} to {memory.max():.0f} samples")
