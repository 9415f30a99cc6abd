"""The recurrence: single steps, and a scan over chunks with the state carried from one to the next.

A system is one discrete step, ``y = C (s + B_now u)`` and ``s <- A_bar s + B_next u``, for each of
H channels. The state is a real vector of S numbers per channel (see ``pairs``), always in double
precision: a rounded A_bar would drift away from the convolution over thousands of steps.

Inside of a sequence s is the state that the next sample meets. What is carried from one call to the
next is the state just after a sample, ``s + B_now u``, followed by u itself where the rule looks at
the sample before; :func:`meet` and :func:`leave` lead from one to the other.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from s4d_torch.ssm.autodiff import traced
from s4d_torch.ssm.convolution import DEVICE_PIECE
from s4d_torch.ssm.discretization import Discrete, DiscreteLowRank
from s4d_torch.ssm.kernel import Squares, blocks, dense, powers, toeplitz
from s4d_torch.ssm.pairs import readout, to_complex, to_real


class System(Protocol):
    """One step of H independent systems, and what a chunk of many steps needs of it."""

    @property
    def direct(self) -> Tensor:
        """``C B_now``, what reaches the output at once; (H,)."""
        ...

    @property
    def output(self) -> Tensor:
        """C as a real row over the state; (H, S)."""
        ...

    @property
    def input(self) -> Tensor:
        """B_next as a real column; (H, S)."""
        ...

    @property
    def now(self) -> Tensor:
        """B_now as a real column; (H, S)."""
        ...

    @property
    def before(self) -> Tensor | None:
        """B_before as a real column, (H, S), of a rule that looks at the sample before."""
        ...

    def power(self, steps: int) -> Tensor:
        """``A_bar^steps`` in the system's own form, for :meth:`apply`."""
        ...

    def apply(self, power: Tensor, state: Tensor) -> Tensor:
        """A power of A_bar times a state (batch, H, S)."""
        ...

    def advance(self, state: Tensor, steps: Tensor, most: int) -> Tensor:
        """``A_bar^steps s`` with a number of steps up to ``most`` for each sequence, (batch,)."""
        ...

    def strides(self, count: int, stride: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """Powers of ``A_bar^stride``, for ``count`` chunks; ``stride`` is a power of 2 or count 1.

        Rounded to the precision of a signal: each is made exactly, and used a few times.
        """
        ...

    def spread(self, state: Tensor, count: int, strides: tuple[Tensor, ...]) -> Tensor:
        """``A_bar^(stride i) s`` for i < count: (batch, H, S) -> (H, batch, count, S)."""
        ...

    def gather(self, parts: Tensor, *strides: Tensor) -> Tensor:
        """``sum_i A_bar^(stride (count-1-i)) parts_i``: (H, count, batch, S) -> (H, batch, S)."""
        ...

    def outputs(self, length: int) -> Tensor:
        """``C A_bar^j`` for j < length; (H, length, S)."""
        ...

    def inputs(self, length: int) -> Tensor:
        """``A_bar^(length-1-j) B_next`` for j < length; (H, length, S)."""
        ...


@dataclass
class DiagonalSystem:
    """A system whose A_bar is diagonal; C (H, M) complex."""

    step: Discrete
    C: Tensor
    pairs: bool = True
    direct: Tensor = field(init=False)
    output: Tensor = field(init=False)
    input: Tensor = field(init=False)
    now: Tensor = field(init=False)
    before: Tensor | None = field(init=False)

    def __post_init__(self) -> None:  # no cached_property: torch.compile stops at its lock
        total = (self.C * self.step.B_now).sum(-1).real
        self.direct = 2 * total if self.pairs else total
        self.output = readout(self.C, self.pairs)
        self.input = to_real(self.step.into_state, self.pairs)
        self.now = to_real(self.step.B_now, self.pairs)
        before = self.step.B_before
        self.before = None if before is None else to_real(before, self.pairs)

    def power(self, steps: int) -> Tensor:
        return torch.exp(self.step.log_A * steps)

    def apply(self, power: Tensor, state: Tensor) -> Tensor:
        return to_real(power * to_complex(state, self.pairs), self.pairs)

    def advance(self, state: Tensor, steps: Tensor, most: int) -> Tensor:
        count = steps.to(self.step.log_A.real.dtype)[:, None, None]
        return self.apply(torch.exp(self.step.log_A * count), state)

    def strides(self, count: int, stride: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
        return (_rounded(powers(self.step.log_A, count, stride), dtype),)  # (H, count, M)

    def spread(self, state: Tensor, count: int, strides: tuple[Tensor, ...]) -> Tensor:
        modes = to_complex(state, self.pairs).transpose(0, 1)  # (H, batch, M)
        return to_real(strides[0][:, None] * modes[:, :, None], self.pairs)

    def gather(self, parts: Tensor, *strides: Tensor) -> Tensor:
        weights = strides[0].flip(1)[:, :, None]  # the last part is there already
        return to_real((weights * to_complex(parts, self.pairs)).sum(1), self.pairs)

    def outputs(self, length: int) -> Tensor:
        return readout(self.C[:, None] * powers(self.step.log_A, length), self.pairs)

    def inputs(self, length: int) -> Tensor:
        table = powers(self.step.log_A, length).flip(1)
        return to_real(table * self.step.into_state[:, None], self.pairs)


@dataclass
class DenseSystem:
    """A system with a full real A_bar (H, S, S); now and output (H, S)."""

    A_bar: Tensor
    now: Tensor
    output: Tensor
    before: Tensor | None = None
    direct: Tensor = field(init=False)
    input: Tensor = field(init=False)
    squares: Squares = field(init=False)

    def __post_init__(self) -> None:
        self.direct = (self.output * self.now).sum(-1)
        self.input = (self.A_bar @ self.now[..., None])[..., 0]
        self.squares = Squares(self.A_bar)

    @classmethod
    def from_low_rank(cls, step: DiscreteLowRank, C: Tensor) -> "DenseSystem":
        return cls(dense(step), to_real(step.B_now), readout(C))

    def power(self, steps: int) -> Tensor:
        return self.squares.power(steps)

    def apply(self, power: Tensor, state: Tensor) -> Tensor:
        return torch.matmul(state.transpose(0, 1), power.mT).transpose(0, 1)

    def advance(self, state: Tensor, steps: Tensor, most: int) -> Tensor:
        for k in range(most.bit_length()):  # binary powers, each sequence taking what it needs
            odd = (steps // 2**k % 2 == 1)[:, None, None]
            state = torch.where(odd, self.apply(self.squares.get(k), state), state)
        return state

    def strides(self, count: int, stride: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
        first, levels = stride.bit_length() - 1, 0
        while 2**levels < count:  # doubled and doubled again
            levels += 1
        return tuple(self.squares.get(first + k).mT.to(dtype) for k in range(levels))

    def spread(self, state: Tensor, count: int, strides: tuple[Tensor, ...]) -> Tensor:
        total = state.transpose(0, 1)[:, None]  # (H, 1, batch, S)
        for power in strides:
            total = torch.cat([total, _times(total, power)], dim=1)
        return total[:, :count].transpose(1, 2)

    def gather(self, parts: Tensor, *strides: Tensor) -> Tensor:
        for power in strides:  # two neighbours become one; zeros before the first change nothing
            odd = parts.shape[1] % 2
            if torch.compiler.is_compiling() or odd:
                parts = pad(parts, (0, 0, 0, 0, odd, 0))
            early, late = parts.unflatten(1, (-1, 2)).unbind(2)
            parts = _times(early, power) + late
        return parts[:, 0]

    def outputs(self, length: int) -> Tensor:
        return self.squares.rows(self.output[:, None], length)

    def inputs(self, length: int) -> Tensor:
        return self.squares.columns(self.input[..., None], length).mT.flip(1)


def _times(states: Tensor, power: Tensor) -> Tensor:
    """(H, I, batch, S) times (H, S, S); a product that broadcasts would copy the power I times."""
    return (states.flatten(1, 2) @ power).unflatten(1, states.shape[1:3])


def meet(system: System, state: Tensor) -> Tensor:
    """The carried state as the next sample meets it, (batch, H, S)."""
    if system.before is None:
        return system.apply(system.power(1), state)
    x, u = state[..., :-1], state[..., -1:]
    return system.apply(system.power(1), x) + system.before * u


def leave(system: System, met: Tensor, u: Tensor) -> Tensor:
    """What is carried on after a sample u (batch, H) that met a state (batch, H, S)."""
    u = u.to(met.dtype)[..., None]
    x = met + system.now * u
    return x if system.before is None else torch.cat([x, u], dim=-1)


def step(system: System, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """One sample: u (batch, H), the carried state -> y (batch, H) and the state after it."""
    met = meet(system, state)
    y = (met * system.output).sum(-1) + system.direct * u
    return y.to(u.dtype), leave(system, met, u)


def scan(
    system: System,
    u: Tensor,
    state: Tensor | None,
    *,
    chunk: int | None = None,
    skip: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """A sequence in chunks: u (batch, H, L), the carried state -> y (batch, H, L), that at its end.

    ``skip`` (H,) is a D, added to what reaches the output at once.
    Inside a chunk of T samples the output is a T x T Toeplitz product plus what the state at its
    start still sends; the states at the starts follow one another with ``A_bar^T``. Chunks are
    short on a CPU; on another device they are fewer, and so are the states.
    """
    length = u.shape[-1]
    chunk = chunk or (64 if u.is_cpu else max(64, blocks(length)[1]))
    whole = length // chunk * chunk
    direct = system.direct if skip is None else system.direct + skip
    met = last = _rest(system, u) if state is None else meet(system, state)
    ys = []
    for part in (u[..., :whole], u[..., whole:]):
        if part.shape[-1]:
            y, met, last = _scan_whole(system, part, met, min(chunk, part.shape[-1]), direct)
            ys.append(y)
    y = ys[0] if len(ys) == 1 else torch.cat(ys, dim=1)
    tail = u[..., (length - 1) // chunk * chunk :]
    return y.transpose(1, 2), carried(system, tail, last)


def _rest(system: System, u: Tensor) -> Tensor:
    """A state of zeros, for a sample to meet."""
    return system.input.new_zeros(u.shape[0], *system.input.shape)


def _scan_whole(
    system: System, u: Tensor, state: Tensor, chunk: int, direct: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """u (batch, H, L) -> y (batch, L, H) as it lies in memory, which is what comes next reads.

    Then the states after and before the last chunk.
    """
    dtype, exact = u.dtype, state.dtype
    batch, channels = u.shape[:2]
    rows = u.unflatten(-1, (-1, chunk)).permute(1, 2, 0, 3).reshape(channels, -1, chunk)
    outputs = system.outputs(chunk)  # (H, T, S)
    added = _added(system, rows, batch, chunk)
    state, power = state.to(dtype), _rounded(system.power(chunk), dtype)
    starts = []
    for more in added:  # (H, batch, S)
        starts.append(state.transpose(0, 1))
        state = system.apply(power, state) + more.transpose(0, 1)
    kernel = torch.cat(
        [direct[:, None], (outputs[:, :-1] * system.input[:, None]).sum(-1)], dim=-1
    )  # (H, T)
    y = torch.bmm(torch.stack(starts, 1).flatten(1, 2), outputs.to(dtype).mT)
    y = torch.baddbmm(y, rows, toeplitz(kernel).to(dtype))  # (H, I batch, T)
    y = y.unflatten(1, (-1, batch)).permute(2, 1, 3, 0).flatten(1, 2)
    return y, state.to(exact), starts[-1].transpose(0, 1).to(exact)


def _added(system: System, rows: Tensor, batch: int, chunk: int) -> tuple[Tensor, ...]:
    """What each chunk adds to the state by its end: (H, I batch, T) -> I times (H, batch, S)."""
    added = torch.bmm(rows, system.inputs(chunk).to(rows.dtype))
    return added.unflatten(1, (-1, batch)).unbind(1)


def _rounded(power: Tensor, dtype: torch.dtype) -> Tensor:
    """A power of A_bar in the precision of a chunk; one rounding in many samples does no harm."""
    single = torch.complex64 if power.is_complex() else torch.float32
    return power.to(single) if dtype == torch.float32 else power


def end_state(
    system: System,
    u: Tensor,
    state: Tensor | None,
    lengths: Tensor | None = None,
    chunk: int | None = None,
) -> Tensor:
    """The state after u (batch, H, L), or after the first ``lengths`` samples of each sequence.

    From a state that the first sample meets to the one that another sample would meet.
    """
    length = u.shape[-1]
    count, chunk = chunks(length) if chunk is None else (-(-length // chunk), chunk)
    tables: Any = system.inputs(chunk).to(u.dtype), *system.strides(count, chunk, u.dtype)
    rows = rows_at_once(u)
    if traced() or u.shape[0] <= rows:
        total = _gathered(system, count, u, lengths, *tables)
    else:  # a copy of all of u, in the order that products need, would be kept for the gradients
        ends = [None] * u.shape[0] if lengths is None else lengths.split(rows)
        again_later: Any = {"use_reentrant": False, "preserve_rng_state": False}
        each = zip(u.split(rows), ends, strict=False)
        piece = partial(checkpoint, _gathered, system, count, **again_later)
        parts = [piece(x, n, *tables) for x, n in each]
        total = torch.cat(parts, dim=1)
    total = total.transpose(0, 1).to(system.input.dtype)
    if state is None:
        return total
    if lengths is None:
        return total + system.apply(system.power(length), state)
    return total + system.advance(state, lengths, length)


def carried(system: System, u: Tensor, met: Tensor | None, lengths: Tensor | None = None) -> Tensor:
    """What is carried on after u (batch, H, L), or after the first ``lengths`` samples of it.

    ``met`` is the state that the first sample meets.
    """
    if lengths is not None:
        place = (lengths - 1)[:, None, None].expand(-1, u.shape[1], 1)
        return leave(system, end_state(system, u, met, lengths - 1), u.gather(-1, place)[..., 0])
    # whole chunks, of which no copy is made to align them, and the samples after them
    last, chunk = u.shape[-1] - 1, chunks(u.shape[-1])[1]
    whole = last // chunk * chunk
    if whole:
        met = end_state(system, u[..., :whole], met, chunk=chunk)
    if last > whole:
        met = end_state(system, u[..., whole:last], met)
    return leave(system, _rest(system, u) if met is None else met, u[..., -1])


def rows_at_once(u: Tensor) -> int:
    """Sequences of u (batch, H, L) that are copied at a time: all of them on a CPU."""
    batch, channels, length = u.shape
    return batch if u.is_cpu else max(1, DEVICE_PIECE // (channels * length * u.element_size()))


def _gathered(
    system: System, count: int, u: Tensor, lengths: Tensor | None, inputs: Tensor, *strides: Tensor
) -> Tensor:
    """What u (batch, H, L) leaves behind at its ends; (H, batch, S)."""
    (batch, channels, length), chunk = u.shape, inputs.shape[1]
    if lengths is not None:  # align the ends: zeros before the first sample leave a zero state
        place = torch.arange(length, device=u.device) + (lengths - length)[:, None]
        u = u.gather(-1, place.clamp(min=0)[:, None].expand_as(u))
        u = torch.where((place >= 0)[:, None], u, 0.0)
    if torch.compiler.is_compiling() or length % chunk:  # zeros are as good as an earlier start
        u = pad(u, (count * chunk - length, 0))
    rows = u.unflatten(-1, (-1, chunk)).permute(1, 2, 0, 3).reshape(channels, -1, chunk)
    added = torch.bmm(rows, inputs).unflatten(1, (-1, batch))  # (H, I, batch, S)
    return system.gather(added, *strides)


def free_response(system: System, state: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    """What a state sends to the output without input: (batch, H, S) -> (batch, length, H)."""
    count, chunk = chunks(length)
    strides = system.strides(count, chunk, dtype)
    starts = system.spread(state.to(dtype), count, strides)  # (H, batch, I, S)
    sent = torch.bmm(starts.flatten(1, 2), system.outputs(chunk).to(dtype).mT)
    return sent.unflatten(1, (state.shape[0], -1)).flatten(2).permute(1, 2, 0)[:, :length]


def chunks(length: int) -> tuple[int, int]:
    """Into how many chunks of how many samples a sequence goes, about as many of each."""
    count, chunk = blocks(length)
    if torch.compiler.is_compiling():
        return count, chunk
    chunk = min(length, max(64, chunk))
    return -(-length // chunk), chunk
