"""Train a model, write it as ONNX, and run it where there is no PyTorch.

Two graphs are written: one for whole sequences of any length, one for single steps with the state
as input and output. Both are compared with the model before they are kept.
"""

# %% A small model: is the sum of what it has heard positive?
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnxruntime
import torch
from torch import nn

from s4d_torch import SequenceModel, export_model, parameter_groups

torch.manual_seed(0)
model = SequenceModel(d_input=1, d_output=2, d_model=16, n_layers=2, d_state=16, pooling="last")
optimizer = torch.optim.AdamW(parameter_groups(model, lr=0.01, weight_decay=0.01))
for _ in range(60):
    u = torch.randn(32, 100, 1)
    loss = nn.functional.cross_entropy(model(u)[0], (u.sum((1, 2)) > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
u = torch.randn(200, 100, 1)
right = (model(u)[0].argmax(1) == (u.sum((1, 2)) > 0)).double().mean()
print(f"trained: {100 * right:.0f} % right")

# %% Write it, and run it without PyTorch: sequences of a length that was never seen before
signal = np.random.default_rng(0).standard_normal((3, 777, 1)).astype(np.float32)
with torch.no_grad():
    expected = model(torch.from_numpy(signal))[0].numpy()

with TemporaryDirectory() as folder:
    exported = export_model(model, Path(folder) / "exported", to="onnx")
    print("files:", ", ".join(sorted(path.name for path in exported.folder.iterdir())))
    sequence = onnxruntime.InferenceSession(exported.sequence)
    step = onnxruntime.InferenceSession(exported.step)

(scores,) = sequence.run(["y"], {"u": signal, "lengths": np.array([777] * 3)})
print("the whole sequence agrees:", np.abs(scores - expected).max() < 1e-4)

# %% The same, sample by sample: the state goes out and comes in again
names = [item.name for item in step.get_inputs()[1:]]
state = [np.zeros([3, *item.shape[1:]]) for item in step.get_inputs()[1:]]
for sample in signal.swapaxes(0, 1):
    scores, *state = step.run(None, {"u": sample, **dict(zip(names, state, strict=True))})
print("single steps agree:", np.abs(scores - expected).max() < 1e-4)
