"""State spaces as a layer stores them, and what an engine may ask of them.

The stored parameters are real tensors; ``A``, ``B``, ``C``, ``P``, ``dt`` are the physical values,
in double precision. From them come the kernel, the tables of the compiled scan, and one discrete
step. An engine takes the one it works with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from s4d_torch._registry import Registry
from s4d_torch.ssm.compiled.convolution import direct, fourier
from s4d_torch.ssm.compiled.low_rank import low_rank_kernel
from s4d_torch.ssm.compiled.runtime import available
from s4d_torch.ssm.compiled.tables import ScanTables, make_tables, stored_tables
from s4d_torch.ssm.compiled.vandermonde import stored_kernel, stored_taps
from s4d_torch.ssm.constraint import Constraint
from s4d_torch.ssm.discretization import (
    CompiledRule,
    Discrete,
    DiscreteLowRank,
    Rule,
    bilinear_low_rank,
    looks_back,
)
from s4d_torch.ssm.kernel import cauchy, dense, krylov, softmax, softmax_step, vandermonde
from s4d_torch.ssm.pairs import readout, to_real
from s4d_torch.ssm.precision import double
from s4d_torch.ssm.recurrence import DenseSystem, DiagonalSystem, System

T = TypeVar("T")
REMEMBERED = 4  # kernels and the like that a state space keeps for the next call


@dataclass(frozen=True)
class Kernel:
    """A way to compute the kernel, and what it asks of the other choices.

    ``compute(space, length)`` gives K, ([2,] d_model, length). ``adjust(space, step, C)`` changes
    the step and C of a diagonal system to those whose kernel that is, where they differ from the
    discretised ones. ``discretizations`` None allows every rule. ``algorithms`` are further
    functions for the same K, which ``SSM.kernel`` takes by name.
    """

    compute: Callable[[StateSpace, int], Tensor]
    structures: tuple[str, ...] = ("diagonal",)
    discretizations: tuple[str, ...] | None = None
    real_modes: bool = True
    adjust: Callable[[StateSpace, Discrete, Tensor], tuple[Discrete, Tensor]] | None = None
    algorithms: dict[str, Callable[[StateSpace, int], Tensor]] = field(default_factory=dict)
    compiled: bool = False
    """whether the compiled Vandermonde product computes it, for rules that have compiled code"""


@dataclass(frozen=True)
class StateSpace:
    """``d_model`` systems at one sampling rate, from the parameters of a layer.

    raw_decay, frequency (n_ssm, modes); raw_B (n_ssm, modes, 2); raw_C ([2,] d_model, modes, 2);
    log_dt, D (d_model,). Real modes have no frequency and no last axis. With raw_P, (n_ssm, rank,
    modes, 2), a system is diagonal plus low-rank: ``A = diag - P P*``. ``memory`` keeps what was
    made for the next call; None makes everything anew, as training needs it.

    With ``dt_scales="decay"`` the frequency is an angle per sample at rate 1: Im(A) = frequency
    / dt, so that ``dt A`` has it whatever dt is. A is of continuous time as ever, and a rate
    multiplies ``dt A``, decay and angle alike. Compiled code takes stored frequencies for those of
    continuous time; it is given tables of such a system, made by plain torch.
    """

    constraint: Constraint
    rule: Rule
    kernel_rule: Kernel
    softmax_length: int
    rate: float
    raw_decay: Tensor
    frequency: Tensor | None
    raw_B: Tensor
    raw_C: Tensor
    log_dt: Tensor
    D: Tensor
    raw_P: Tensor | None = None
    memory: dict[Any, Any] | None = None
    dt_scales: str = "all"

    # -- physical values ---------------------------------------------------------------------

    @property
    def pairs(self) -> bool:
        """Whether a mode stands for a conjugate pair."""
        return self.frequency is not None

    @property
    def A(self) -> Tensor:
        """The diagonal of A, (d_model, modes)."""
        decay = self.constraint.forward(double(self.raw_decay))
        imag = torch.zeros_like(decay) if self.frequency is None else double(self.frequency)
        A = self._per_channel(torch.complex(-decay, imag))
        if self.dt_scales == "decay":
            A = torch.complex(A.real, A.imag / self.dt[:, None])
        return A

    @property
    def B(self) -> Tensor:
        """(d_model, modes)."""
        return self._per_channel(self._as_complex(self.raw_B))

    @property
    def C(self) -> Tensor:
        """(d_model, modes), or (2, d_model, modes) if bidirectional."""
        return self._as_complex(self.raw_C)

    @property
    def P(self) -> Tensor | None:
        """The low-rank term, (d_model, rank, modes); None if there is none."""
        return None if self.raw_P is None else self._per_channel(self._as_complex(self.raw_P))

    @property
    def dt(self) -> Tensor:
        """The step size of each channel at the rate it was trained at, (d_model,)."""
        return double(self.log_dt).exp()

    @property
    def step_size(self) -> Tensor:
        """The step size at this rate, (d_model, 1)."""
        return self.rate * self.dt[:, None]

    @property
    def horizon(self) -> Tensor:
        """``A dt L`` of a softmax kernel: a span of time, so no change of rate alters it."""
        return self.A * self.dt[:, None] * self.softmax_length

    def _per_channel(self, x: Tensor) -> Tensor:
        """Copies of A, B serve neighbouring channels: (n_ssm, ...) -> (d_model, ...)."""
        return x.repeat_interleave(self.log_dt.shape[0] // x.shape[0], dim=0)

    def _as_complex(self, raw: Tensor) -> Tensor:
        raw = double(raw)
        if self.pairs:
            return torch.complex(raw[..., 0], raw[..., 1])
        return torch.complex(raw, torch.zeros_like(raw))

    # -- what engines ask for ----------------------------------------------------------------

    @property
    def dtype(self) -> torch.dtype:
        """What signals are computed in: float32 for parameters of lower precision."""
        dtype = self.raw_C.dtype
        return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype

    @property
    def scannable(self) -> bool:
        """Whether there are tables for the compiled scan: for diagonal systems."""
        return self.raw_P is None

    @property
    def looks_back(self) -> bool:
        """Whether the rule looks at the sample before, which is then carried along."""
        return self.raw_P is None and looks_back(self.rule)

    def output_row(self, ahead: int = 0) -> Tensor:
        """C (H, modes) as it reads a state, of which only half of each pair is there; complex."""
        C = self.C[ahead] if self._bidirectional else self.C
        if self.kernel_rule.adjust is not None:
            C = self.kernel_rule.adjust(self, self.discrete(), C)[1]
        return 2 * C if self.pairs else C

    @property
    def modes(self) -> int:
        """Of a channel."""
        return self.raw_decay.shape[1]

    @property
    def directions(self) -> int:
        """2 if there is a kernel that looks ahead."""
        return 2 if self._bidirectional else 1

    @property
    def compiled_kernel(self) -> bool:
        """Whether K comes from compiled code, which takes too little care for float64."""
        return (
            self.kernel_rule.compiled
            and self._codes is not None
            and self.raw_C.dtype == torch.float32
            and available(self.raw_C.device, torch.float32)
        )

    def kernel(self, length: int, algorithm: str | None = None) -> Tensor:
        """K, (d_model, length) real; bidirectional: (2, d_model, length)."""
        return self._remember(
            ("kernel", length, algorithm), lambda: self._kernel(length, algorithm)
        )

    def _kernel(self, length: int, algorithm: str | None) -> Tensor:
        if algorithm is not None:
            return self.kernel_rule.algorithms[algorithm](self, length).to(self.dtype)
        if self.compiled_kernel and (codes := self._codes) is not None:
            stored = (x.to(self.dtype) for x in (*self._in_pairs(self.raw_C), self.log_dt))
            return stored_kernel(codes, self.rate, length, *stored, pairs=self.pairs)
        return self.kernel_rule.compute(self, length).to(self.dtype)

    def response(self, length: int) -> Tensor:
        """The kernel with D added to its first sample: what answers to one unit of input."""
        return self._remember(("response", length), lambda: self._response(length))

    def _response(self, length: int) -> Tensor:
        kernel = self._kernel(length, None)
        skip = torch.nn.functional.pad(self.D.to(kernel.dtype)[:, None], (0, length - 1))
        if self._bidirectional:  # the present is counted once
            skip = torch.stack([skip, torch.zeros_like(skip)])
        return kernel + skip

    def convolve_directly(self, u: Tensor, ahead: int = 0) -> Tensor:
        """``K * u + D u`` term by term, or with ``ahead=1`` what the kernel that looks ahead adds.

        u, y (batch, length, d_model).
        """
        if self.memory is None and self.compiled_kernel:
            codes, C, *stored = self.as_stored()
            D = stored.pop()
            given = (C[ahead], *stored, D.new_zeros(0) if ahead else D)
            return direct.convolve_stored(codes, self.rate, u, *given, ahead=ahead)
        length = u.shape[1]
        taps = self._remember(("taps", length, ahead), lambda: self._taps(length, ahead))
        return direct.convolve(u, taps, ahead)

    def convolve_by_transforms(self, u: Tensor) -> Tensor:
        """``K * u + D u``, with what a kernel that looks ahead adds, by compiled transforms.

        u, y (batch, length, d_model).
        """
        length = u.shape[1]
        taps = self._remember(("both taps", length), lambda: self._both_taps(length))
        return fourier.convolve(u, taps, self.D.to(u.dtype))

    def as_stored(self) -> tuple[Any, ...]:
        """For compiled kernels: the numbers of rule, constraint and pairs; C (1 or 2, H, modes, 2),
        decay, frequency, B, log_dt and D.
        """
        assert self._codes is not None
        decay, frequency, B, C = self._in_pairs(self.raw_C)
        C = C if self._bidirectional else C[None]
        given = (C, decay, frequency, B, self.log_dt, self.D)
        return (*self._codes, int(self.pairs)), *(x.to(self.dtype) for x in given)

    def _taps(self, length: int, ahead: int) -> Tensor:
        response = self._response(length)
        return direct.as_taps(response[ahead] if self._bidirectional else response)

    def _both_taps(self, length: int) -> Tensor:
        """The kernels in groups of channels, without D."""
        if self.compiled_kernel:
            codes, *stored, _ = self.as_stored()
            return stored_taps(codes, self.rate, length, *stored)
        kernel = self._kernel(length, None)
        return direct.as_taps(kernel if self._bidirectional else kernel[None])

    def tables(self, ahead: int = 0) -> ScanTables:
        """For the compiled scan: with D inside; ``ahead=1`` of the kernel that looks ahead."""
        return self._remember(("tables", ahead), lambda: self._tables(ahead))

    def _tables(self, ahead: int) -> ScanTables:
        raw_C = self.raw_C[ahead] if self._bidirectional else self.raw_C
        D = torch.zeros_like(self.D) if ahead else self.D
        codes = self._codes
        if codes is not None and self.kernel_rule.adjust is None and self.raw_C.dtype == self.dtype:
            stored = (x.to(self.dtype) for x in (*self._in_pairs(raw_C), self.log_dt, D))
            return stored_tables(codes, self.rate, *stored, pairs=self.pairs)
        system = self._diagonal_system(self._as_complex(raw_C))
        C = 2 * system.C if self.pairs else system.C
        direct = system.direct + D.to(system.direct.dtype)
        return make_tables(system.step, C, direct, self.dtype, self.pairs)

    def system(self) -> System:
        """One discrete step, in double precision."""
        return self._remember("system", self._system)

    def _system(self) -> System:
        if self.raw_P is None:
            return self._diagonal_system(self.C)
        return DenseSystem.from_low_rank(self.discrete_low_rank(), self.C)

    def discrete(self) -> Discrete:
        """A_bar and B_bar, as the discretisation gives them."""
        return self.rule(self.A, self.B, self.step_size)

    def discrete_low_rank(self) -> DiscreteLowRank:
        """The bilinear step of a system with a low-rank term, or with none."""
        B, P = self.B, self.P
        P = torch.zeros_like(B)[:, None] if P is None else P
        return bilinear_low_rank(self.A, P, B, self.step_size)

    def _diagonal_system(self, C: Tensor) -> DiagonalSystem:
        step = self.discrete()
        if self.kernel_rule.adjust is not None:
            step, C = self.kernel_rule.adjust(self, step, C)
        return DiagonalSystem(step, C, self.pairs)

    def _in_pairs(self, raw_C: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Decay, frequency, B and C; real modes are written as pairs without an imaginary part."""
        if self.frequency is not None:
            return self.raw_decay, self.frequency, self.raw_B, raw_C
        B, C = (torch.stack([x, torch.zeros_like(x)], dim=-1) for x in (self.raw_B, raw_C))
        return self.raw_decay, torch.zeros_like(self.raw_decay), B, C

    @property
    def _bidirectional(self) -> bool:
        return self.raw_C.ndim - int(self.pairs) == 3

    @property
    def _codes(self) -> tuple[int, int] | None:
        """The numbers of rule and constraint in the compiled code, where both have one."""
        if self.dt_scales != "all" or self.constraint.code is None:
            return None
        return (
            (self.rule.code, self.constraint.code) if isinstance(self.rule, CompiledRule) else None
        )

    def _remember(self, key: object, make: Callable[[], T]) -> T:
        """Several threads may be here at once: what one forgets, another still holds."""
        if self.memory is None:
            return make()
        found: T | None = self.memory.get(key)
        if found is None:
            found = make()
            if len(self.memory) >= REMEMBERED:
                self.memory.clear()
            self.memory[key] = found
        return found


KERNELS: Registry[Kernel] = Registry("kernel")


def _vandermonde(space: StateSpace, length: int) -> Tensor:
    return vandermonde(space.discrete(), space.C, length, pairs=space.pairs)


def _softmax(space: StateSpace, length: int) -> Tensor:
    return softmax(space.discrete(), space.C, space.horizon, length, pairs=space.pairs)


def _normalized(space: StateSpace, step: Discrete, C: Tensor) -> tuple[Discrete, Tensor]:
    return softmax_step(step, C, space.horizon)


def _cauchy(space: StateSpace, length: int) -> Tensor:
    """Cauchy sums at the nodes z^L = -1."""
    B, P = space.B, space.P
    P = torch.zeros_like(B)[:, None] if P is None else P
    step = space.discrete_low_rank()
    return cauchy(space.A, P, B, space.C, space.step_size, step, length)


def _krylov(space: StateSpace, length: int) -> Tensor:
    """The same K by doubling: matrix products only."""
    step = space.discrete_low_rank()
    return krylov(dense(step), to_real(step.B_now), readout(space.C), length)


def _recurrence(space: StateSpace, length: int) -> Tensor:
    """The same K sample by sample in compiled code: the fastest on a CPU by far."""
    if not available(space.raw_C.device, torch.float64):
        return _krylov(space, length)
    return low_rank_kernel(space.discrete_low_rank(), space.C, length)


def _low_rank(space: StateSpace, length: int) -> Tensor:
    """With a low-rank term the recurrence; else the sums."""
    return _cauchy(space, length) if space.raw_P is None else _recurrence(space, length)


KERNELS.register("vandermonde", Kernel(_vandermonde, compiled=True))
KERNELS.register("softmax", Kernel(_softmax, discretizations=("zoh",), adjust=_normalized))
KERNELS.register(
    "cauchy",
    Kernel(
        _low_rank,
        structures=("diagonal", "dplr"),
        discretizations=("bilinear",),
        real_modes=False,
        algorithms={"cauchy": _cauchy, "krylov": _krylov, "recurrence": _recurrence},
    ),
)
