"""What the compiled step is told of a model, and what lies where in its arrays.

Channels lie in groups of W, one vector each, with zeros for those that a last group lacks; P is
their number with these. K = BLOCK. All arrays are flat to machine code; "f" is in the precision of
the model, "d" is double:

    plan      the sizes and options named below
    clock     the time; for each group of each layer until when it has said what its modes send;
              then for each when it is due to say more
    weights   f, in the order of use, see ``tables``
    cells     d (layers, groups, modes, 4 + 4 rank, W): A_bar, then C A_bar^(K-1) as the row that is
              read with, then the low-rank terms. Modes are scaled so that an input adds 1 to each
    modes     d (layers, groups, rows, modes, 2, W): the states, real and imaginary parts
    pool      d (rows, P + W): the running sum of what the decoder reads, the number of samples
    ring      f (layers, groups, rows, 2, K, W): the last K inputs, what the modes will send
    room      f (rows + 5, P): x, then what a block works with
    work      d: K inputs of a group, what its modes send, what low-rank terms see; the chances of
              symbols

A row is a sequence of the batch, or one of a pair of sequences.
"""

from s4d_torch.ssm.compiled.runtime import LANES as W

__all__ = ["W"]

BLOCK = 16  # samples between two runs of a mode: a power of 2, and a multiple of 4

# places in the plan
(
    ROWS, TOWERS, LAYERS, GROUPS, MODES, RANK, INPUTS, WIDTH, OUTPUTS,
    EMBEDDING, PRENORM, ACTIVATION, MIXING, MEAN,
) = range(14)  # fmt: skip


def padded(count: int, to: int = W) -> int:
    """The next multiple."""
    return -(-count // to) * to
