"""A detector that trains on recordings and then listens to a live stream.

The signal is noise; now and then a short ring begins. The model says at each sample how likely it
is ringing right now. It is trained on whole sequences, as a convolution, and runs on what arrives,
as a recurrence, with the same answers.
"""

# %% Recordings, and where they ring
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn

from s4d_torch import SequenceModel, parameter_groups
from s4d_torch.deploy import Stream, Streams


def record(count: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Signals (count, length, 1), and (count, length) with 1 where a ring of 60 samples sounds."""
    signal = torch.randn(count, length, generator=generator)
    ringing = torch.zeros(count, length)
    ring = 4 * torch.sin(0.8 * torch.arange(60)) * torch.exp(-torch.arange(60) / 40)
    for row in range(count):
        for start in torch.randint(length - 60, (length // 300,), generator=generator).tolist():
            signal[row, start : start + 60] += ring
            ringing[row, start : start + 60] = 1
    return signal[..., None], ringing


# %% Training, on whole sequences
torch.manual_seed(0)
generator = torch.Generator().manual_seed(0)
model = SequenceModel(d_input=1, d_output=1, d_model=16, n_layers=2, d_state=16, pooling="none")
optimizer = torch.optim.AdamW(parameter_groups(model, lr=0.01, weight_decay=0.01))
for _ in range(80):
    signal, ringing = record(8, 1200, generator)
    scores, _ = model(signal)
    loss = nn.functional.binary_cross_entropy_with_logits(scores[..., 0], ringing)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()

# %% Live: chunks of any size, as they come
signal, ringing = record(1, 3000, generator)
with torch.no_grad():
    offline = model(signal)[0][0, :, 0]

stream, answers, place = Stream(model), [], 0
while place < 3000:
    size = int(torch.randint(1, 200, (), generator=generator))
    answers.append(stream.push(signal[0, place : place + size]))  # (size, 1)
    place += size
live = torch.cat(answers)[:, 0]
heard, sounded = live > 0, ringing[0] > 0
print(f"heard {100 * heard[sounded].double().mean():.0f} % of the ringing,", end=" ")
print(f"{100 * heard[~sounded].double().mean():.0f} % of the rest")
print(f"live and offline differ by at most {(live - offline).abs().max():.0e}")

# %% A restart in the middle: the state is a small file
with TemporaryDirectory() as folder:
    first = Stream(model)
    first.push(signal[0, :1234])
    first.snapshot(Path(folder) / "state.safetensors")
    second = Stream(model)  # another process, another day
    second.restore(Path(folder) / "state.safetensors")
    rest = second.push(signal[0, 1234:])[:, 0]
print("after a restart the same:", torch.allclose(rest, live[1234:], atol=1e-5))

# %% Many sources at once: they join with their first chunk, and leave when they like
rooms = Streams(model)
rooms.push({"hall": signal[0, :100]})
both = rooms.push({"hall": signal[0, 100:200], "kitchen": signal[0, :50]})
rooms.leave("hall")
print("in the hall:", torch.allclose(both["hall"][:, 0], live[100:200], atol=1e-5), "left:", rooms)
