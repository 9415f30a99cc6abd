"""State space systems in plain torch operators: one step, and a sequence in chunks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from s4d_torch.deploy.export.plan import CHUNK, SystemPlan


class StepSystem(nn.Module):
    """``y = output s + direct u``, ``s <- A s + input u``; see :class:`SystemPlan`."""

    diagonal: Tensor
    left: Tensor
    right: Tensor
    output: Tensor
    input: Tensor
    direct: Tensor

    def __init__(self, plan: SystemPlan) -> None:
        super().__init__()
        self.kind = plan.kind
        low_rank = ("left", "right") if plan.kind == "low rank" else ()
        for name in ("diagonal", "output", "input", "direct", *low_rank):
            self.register_buffer(name, getattr(plan, name))

    def forward(self, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """u (batch, H) float32, state (batch, H, S) float64 -> y (batch, H), the next state."""
        exact = u.double()
        y = (state * self.output).sum(-1) + self.direct * exact
        after = self.multiply(self.diagonal, state)
        if self.kind == "low rank":
            seen = (state[:, :, None] * self.right).sum(-1)  # (batch, H, rank)
            after = after - (self.left * seen[:, :, None]).sum(-1)
        return y.to(u.dtype), after + self.input * exact[..., None]

    def multiply(self, a: Tensor, s: Tensor) -> Tensor:
        """Entry by entry, (..., S); complex numbers are neighbours."""
        if self.kind == "real":
            return a * s
        (a, b), (x, y) = (part.unflatten(-1, (-1, 2)).unbind(-1) for part in (a, s))
        return torch.stack([a * x - b * y, a * y + b * x], dim=-1).flatten(-2)


class ChunkedSystem(StepSystem):
    """A sequence: matrix products inside chunks, a loop from one chunk's state to the next."""

    log_diagonal: Tensor

    def __init__(self, plan: SystemPlan) -> None:
        super().__init__(plan)
        self.register_buffer("log_diagonal", plan.log_diagonal)

    def forward(self, x: Tensor, chunks: int) -> Tensor:  # type: ignore[override]
        """x (rows, chunks T, H) -> y of the same shape."""
        rows, _, channels = x.shape
        size = self.output.shape[1]
        outputs, inputs, toeplitz, power = self.tables()
        blocks = x.reshape(rows * chunks, CHUNK, channels).permute(2, 0, 1)  # (H, rows n, T)
        added = torch.bmm(blocks, inputs).permute(1, 0, 2).reshape(rows, chunks, channels, size)
        zero = torch.zeros(rows, channels, size)

        def body(state: Tensor, more: Tensor) -> tuple[Tensor, Tensor]:
            return self.next_chunk(power, state) + more, state.clone()

        _, starts = loop()(body, zero, added.transpose(0, 1).contiguous(), dim=0)
        starts = starts.transpose(0, 1).reshape(rows * chunks, channels, size)
        y = torch.bmm(blocks, toeplitz) + torch.bmm(starts.permute(1, 0, 2), outputs.mT)
        return y.permute(1, 2, 0).reshape(rows, chunks * CHUNK, channels)

    def next_chunk(self, power: Tensor, state: Tensor) -> Tensor:
        """``A^T s`` for a state (rows, H, S)."""
        if self.kind == "low rank":
            return torch.matmul(state.transpose(0, 1), power.mT).transpose(0, 1).contiguous()
        return self.multiply(power, state)

    def tables(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """``C A^j`` (H, T, S), ``A^(T-1-j) B`` (H, T, S), the Toeplitz matrix (H, T, T) and A^T.

        In double precision; made in the graph, as A, B and C are much smaller.
        """
        rows, columns, power = (
            self.mode_tables() if self.kind != "low rank" else self.matrix_tables()
        )
        kernel = (rows[:, :-1] * self.input[:, None]).sum(-1)
        before = self.direct.new_zeros(self.direct.shape[0], CHUNK - 1)
        kernel = torch.cat([before, self.direct[:, None], kernel], 1).float()
        toeplitz = kernel.unfold(1, CHUNK, 1).flip(1)  # M[s, t] = K[t - s], zero before
        return rows.float(), columns.float(), toeplitz, power.float()

    def mode_tables(self) -> tuple[Tensor, Tensor, Tensor]:
        """From ``A^j = e^(j log A)``; a row of C reads the real part, so A is conjugated there."""
        times = torch.arange(CHUNK + 1, dtype=torch.float64)[:, None]
        exponent = self.log_diagonal[:, :, None] * times  # (2, H, T + 1, modes)
        size, angle = exponent[0].exp(), exponent[1]
        a, b = size * angle.cos(), size * angle.sin()
        if self.kind == "real":
            before = a[:, :-1]
            rows = before * self.output[:, None]
            return rows, before.flip(1) * self.input[:, None], a[:, -1]
        powers = torch.stack([a, b], dim=-1).flatten(-2)  # (H, T + 1, S)
        conjugate = torch.stack([a, -b], dim=-1).flatten(-2)
        rows = self.multiply(conjugate[:, :-1], self.output[:, None])
        return rows, self.multiply(powers[:, :-1].flip(1), self.input[:, None]), powers[:, -1]

    def matrix_tables(self) -> tuple[Tensor, Tensor, Tensor]:
        """By doubling, with squares of A as a matrix."""
        one = torch.eye(self.output.shape[1], dtype=torch.float64)
        diagonal = self.multiply(self.diagonal[:, None], one).mT  # its columns are A e_i
        power = diagonal - self.left @ self.right
        rows, columns = self.output[:, None], self.input[:, None]
        while rows.shape[1] < CHUNK:
            rows = torch.cat([rows, rows @ power], 1)
            columns = torch.cat([columns @ power.mT, columns], 1)
            power = power @ power
        return rows, columns, power


def loop() -> Any:
    """torch's scan over the first axis, which an archive keeps as a loop of any length."""
    try:
        from torch._higher_order_ops.scan import scan
    except ImportError as error:
        raise ImportError(
            f"archives of sequences need torch's scan, which torch {torch.__version__} lacks; "
            "use torch 2.6 or later"
        ) from error
    return scan
