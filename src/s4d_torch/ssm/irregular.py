"""Samples that are not evenly spaced: a step of its own size before each of them.

With the gap ``r_k`` before sample k, in steps of the training rate,

    x_k = A_bar(r_k dt) x_(k-1) + B_before(r_k dt) u_(k-1) + B_now(r_k dt) u_k        y_k = C x_k

where only a rule that looks at the sample before has a B_before. So a zero-order hold takes u_k as
the value since the sample before. Whoever looks ahead runs the same from the end: the value u_k,
held over the gap before it, is met when that gap is passed, so what sample t hears depends on the
gaps ahead of it.

Diagonal systems run in compiled code. In plain torch the steps of some samples are made at a time,
and made again for the gradients: memory stays near the size of the signal. Where only a few gaps
occur, their steps are made once.
"""

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from s4d_torch.ssm.autodiff import traced
from s4d_torch.ssm.compiled import runtime
from s4d_torch.ssm.compiled.irregular import scan as compiled
from s4d_torch.ssm.compiled.irregular.tables import make_tables
from s4d_torch.ssm.compiled.scan import whole_spans
from s4d_torch.ssm.compiled.tables import to_lanes
from s4d_torch.ssm.discretization import DIRAC, CompiledRule, bilinear_low_rank
from s4d_torch.ssm.gaps import Gaps
from s4d_torch.ssm.pairs import readout, to_complex, to_real
from s4d_torch.ssm.precision import double
from s4d_torch.ssm.state_space import StateSpace

ENTRIES = 2**21  # complex numbers of one kind in the steps that are made at a time


class Steps(NamedTuple):
    """The steps of some gaps, complex (..., H, M): one more axis before M for left and right.

    ``x <- A_bar x - left Re(right x) + B_before u_(k-1) + B_now u_k``.
    """

    A_bar: Tensor
    B_now: Tensor
    B_before: Tensor | None = None
    left: Tensor | None = None
    right: Tensor | None = None

    def at(self, place: Any) -> "Steps":
        A_bar, B_now, *others = self
        parts = (None if part is None else part[place] for part in others)
        return Steps(A_bar[place], B_now[place], *parts)

    def advance(self, x: Tensor, u: Tensor, before: Tensor) -> Tensor:
        """From sample to sample: x (batch, H, M), u and the sample before it (batch, H)."""
        after = self.A_bar * x + self.B_now * u[..., None]
        if self.left is not None and self.right is not None:
            seen = (self.right * x[..., None, :]).sum(-1).real  # (batch, H, rank)
            after = after - (self.left * seen[..., None]).sum(-2)
        return after if self.B_before is None else after + self.B_before * before[..., None]


def make_steps(space: StateSpace, gaps: Tensor) -> Steps:
    """For gaps (...), in steps of the training rate."""
    dt = double(gaps)[..., None, None] * space.step_size  # (..., H, 1)
    if space.P is not None:
        low_rank = bilinear_low_rank(space.A, space.P, space.B, dt)
        left = low_rank.left.transpose(-1, -2)
        return Steps(low_rank.diagonal, low_rank.B_now, None, left, low_rank.right)
    step = space.rule(space.A, space.B, dt)
    if space.kernel_rule.adjust is not None:
        step, _ = space.kernel_rule.adjust(space, step, space.C)
    return Steps(step.A_bar, step.B_now, step.B_before)


def run(
    space: StateSpace, u: Tensor, gaps: Gaps, state: Tensor | None, spans: Tensor | None
) -> tuple[Tensor, Tensor]:
    """u (batch, length, H), carried states -> y, and the state at the end of each sequence.

    ``spans`` (n, 2) are the sequences, by default whole rows. Only compiled code takes those that
    do not begin where a row does. Beyond their ends u has to be zero.
    """
    system = _compiled(space, u, gaps)
    if system is not None:
        return _run_compiled(space, u, gaps, system, state, spans, 0)
    return _run_plain(space, u, gaps, state, None if spans is None else spans[:, 1], 0)


def run_ahead(space: StateSpace, u: Tensor, gaps: Gaps, spans: Tensor | None) -> Tensor:
    """What the kernel that looks ahead adds."""
    system = _compiled(space, u, gaps, ahead=1)
    if system is not None:
        return _run_compiled(space, u, gaps, system, None, spans, 1)[0]
    y, _ = _run_plain(space, u.flip(1), gaps.flip(), None, None, 1)
    return torch.nn.functional.pad(y.flip(1)[:, 1:], (0, 0, 0, 1))


def step(space: StateSpace, u: Tensor, gaps: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """One sample: u (batch, H), gaps (batch,), the carried state -> y and the next state."""
    x, before = _begin(space, u[:, None], state)
    exact = double(u)
    x = make_steps(space, gaps).advance(x, exact, before)
    y = (x * space.output_row()).sum(-1).real + double(space.D) * exact
    return y.to(u.dtype), _carried(space, x, u)


def compiles(space: StateSpace, u: Tensor, gaps: Gaps) -> bool:
    """Whether compiled code runs this: any rule over few gaps, those it knows over many."""
    if torch.compiler.is_compiling() or not space.scannable:
        return False
    if not runtime.available(u.device, u.dtype):
        return False
    return gaps.named is not None or _known(space, u.dtype, gaps) is not None


def _begin(
    space: StateSpace, u: Tensor, state: Tensor | None, count: int | None = None
) -> tuple[Tensor, Tensor]:
    """The state (n, H, M) after the sample before the first, and that sample, (n, H)."""
    if state is None:
        x = space.A.new_zeros(count or u.shape[0], u.shape[2], space.modes)
        return x, x.real.new_zeros(x.shape[:2])
    if space.looks_back:
        return to_complex(state[..., :-1], space.pairs), state[..., -1]
    return to_complex(state, space.pairs), state.new_zeros(state.shape[:2])


def _carried(space: StateSpace, x: Tensor, u: Tensor) -> Tensor:
    """The carried state of :func:`_begin`."""
    state = to_real(x, space.pairs)
    return torch.cat([state, double(u)[..., None]], dim=-1) if space.looks_back else state


# -- in compiled code ------------------------------------------------------------------------------


def _compiled(space: StateSpace, u: Tensor, gaps: Gaps, ahead: int = 0) -> compiled.System | None:
    """The system as the compiled scan reads it; None where it cannot run."""
    if not compiles(space, u, gaps):
        return None
    C = readout(space.output_row(ahead) / (2 if space.pairs else 1)).unflatten(-1, (-1, 2))
    C = C if space.pairs else C / 2  # real modes are written as pairs, and read once
    D = torch.zeros_like(space.D) if ahead else space.D
    ends, known = (C.contiguous(), double(D)), _known(space, u.dtype, gaps)
    if gaps.named is not None:
        values, back = gaps.named[0], space.looks_back
        table = make_tables(*known, values) if known and not back else None
        table = to_lanes(_table(space, values)) if table is None else table
        none = table.new_zeros(space.D.shape[0], 0, 4)
        return compiled.System(compiled.TABLES, space.looks_back, table, none, *ends)
    assert known is not None
    rule, modes = known
    row = 6 if space.looks_back else 4
    table = to_lanes(modes.new_zeros(len(modes), modes.shape[1], 0, row))
    return compiled.System(rule, space.looks_back, table, modes, *ends)


def _known(space: StateSpace, dtype: torch.dtype, gaps: Gaps) -> tuple[int, Tensor] | None:
    """The number of the rule and the modes, where compiled code can make the steps of gaps."""
    rule = space.rule.code if isinstance(space.rule, CompiledRule) else None
    if rule not in compiled.RULES or rule is None:
        return None
    modes = _modes(space, rule)
    return (rule, modes) if compiled.safe(rule, modes, gaps.each, dtype) else None


def _modes(space: StateSpace, rule: int) -> Tensor:
    """``dt A`` and ``dt B``, (H, M, 4); B itself where samples are events of no length."""
    B = space.B if rule == DIRAC else space.B * space.step_size
    if space.kernel_rule.adjust is not None:
        step = space.discrete()._replace(B_now=B)
        B = space.kernel_rule.adjust(space, step, space.C)[0].B_now
    return torch.view_as_real(torch.stack([space.A * space.step_size, B], dim=-1)).flatten(-2)


def _table(space: StateSpace, gaps: Tensor) -> Tensor:
    """The steps of some gaps by any rule, (H, M, gaps, 4 or 6)."""
    steps = make_steps(space, gaps)  # (gaps, H, M)
    parts = [x for x in (steps.A_bar, steps.B_now, steps.B_before) if x is not None]
    table = torch.view_as_real(torch.stack(parts, dim=-1))
    return table.flatten(-2).permute(1, 2, 0, 3)


def _run_compiled(
    space: StateSpace, u: Tensor, gaps: Gaps, system: compiled.System, state: Tensor | None,
    spans: Tensor | None, ahead: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    spans = whole_spans(u) if spans is None else spans
    rows, times = u.flatten(0, 1), gaps.each.flatten()
    named = gaps.named
    which = torch.zeros_like(times, dtype=torch.int64) if named is None else named[1].flatten()
    x, before = _begin(space, u, state, len(spans))
    y, x = compiled.run(rows, system, spans, times, which, x, before, ahead=ahead)
    return y.view(u.shape), _carried(space, x, rows[spans.sum(1) - 1])


# -- in plain torch --------------------------------------------------------------------------------


def _run_plain(
    space: StateSpace, u: Tensor, gaps: Gaps, state: Tensor | None, lengths: Tensor | None,
    ahead: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    batch, length, channels = u.shape
    x, before = _begin(space, u, state)
    last = torch.full((batch,), length, device=u.device) if lengths is None else lengths
    table: Steps | tuple[()] = ()
    which = gaps.each
    if gaps.named is not None:
        table, which = make_steps(space, gaps.named[0]), gaps.named[1]
    size = max(1, ENTRIES // (batch * channels * space.modes))
    ys, end = [], (x, before)
    for first in range(0, length, size):
        some = slice(first, first + size)
        piece: Any = partial(_piece, space, ahead, last - 1 - first)
        if torch.is_grad_enabled() and not traced():
            piece = partial(checkpoint, piece, use_reentrant=False, preserve_rng_state=False)
        y, x, before, *end = piece(u[:, some], which[:, some], x, before, *end, *table)
        ys.append(y)
    return torch.cat(ys, dim=1), _carried(space, *end)


def _piece(
    space: StateSpace, ahead: int, last: Tensor, u: Tensor, which: Tensor, x: Tensor,
    before: Tensor, end: Tensor, end_before: Tensor, *table: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Some samples: y, the state after them, and that of sequences whose ``last`` is among them."""
    steps = Steps(*table).at(which) if table else make_steps(space, which)
    exact, states = double(u), []
    for t, sample in enumerate(exact.unbind(1)):
        x = steps.at((slice(None), t)).advance(x, sample, before)
        before = sample
        states.append(x)
        here = (last == t)[:, None]
        end = torch.where(here[..., None], x, end)
        end_before = torch.where(here, sample, end_before)
    C = space.output_row(ahead)
    y = (torch.stack(states, 1) * C).sum(-1).real
    if not ahead:
        y = y + double(space.D) * exact
    return y.to(u.dtype), x, before, end, end_before
