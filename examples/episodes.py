"""Episodes in one long row, as a replay buffer of a recurrent policy holds them.

At the first step of an episode a cue is seen, one of four. At every later step the right action is
that of the cue. Only memory can know it, and only a memory that forgets the episode before. The
mask ``is_init``, True at the first step of each episode, is what torchrl keeps under that name.
"""

# %% Episodes of 5 to 20 steps, cut off where a row of the buffer ends
import torch
from torch.nn.functional import cross_entropy, one_hot

from s4d_torch import SequenceModel, parameter_groups

torch.manual_seed(0)
CUES, STEPS = 4, 100


def play(rows: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Observations (rows, STEPS, CUES), where episodes begin, and the right actions."""
    is_init = torch.rand(rows, STEPS) < 0.08
    is_init[:, 0] = True
    drawn, episode = torch.randint(CUES, (rows, STEPS)), is_init.cumsum(1)
    first = one_hot(episode - 1, STEPS) * is_init[..., None]  # at which step each episode begins
    cues = torch.einsum("rse,rs->re", first, drawn)
    actions = cues.gather(1, episode - 1)
    seen = one_hot(actions, CUES) * is_init[..., None]
    return seen.float(), is_init, actions


# %% A policy with memory, taught what to do
policy = SequenceModel(CUES, CUES, d_model=32, n_layers=2, d_state=16, pooling="none")
optimizer = torch.optim.AdamW(parameter_groups(policy), lr=0.005)
for _ in range(150):
    seen, is_init, actions = play(16)
    scores, _ = policy(seen, resets=is_init, return_state=False)
    loss = cross_entropy(scores.flatten(0, 1), actions.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# %% New episodes: with the mask, and as one sequence to which an episode never ends
policy.eval().requires_grad_(False)
seen, is_init, actions = play(64)
for name, mask in (("with resets", is_init), ("without", None)):
    scores, _ = policy(seen, resets=mask)
    print(f"{name:12} {100 * (scores.argmax(-1) == actions).float().mean():.1f} % of all actions")

# %% Step by step, as the environment gives them: the same answers
state, chosen = policy.initial_state(64), []
for observation, begins in zip(seen.unbind(1), is_init.unbind(1), strict=True):
    scores, state = policy.step(observation, state, resets=begins)
    chosen.append(scores.argmax(-1))
whole = policy(seen, resets=is_init)[0].argmax(-1)
print("step by step the same:", bool((torch.stack(chosen, 1) == whole).float().mean() > 0.999))
