"""The linear state space module: parameters stored raw and real, read as physical values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, Unpack

import torch
from torch import Generator, Tensor, nn

from s4d_torch._registry import unknown
from s4d_torch.nn import validate
from s4d_torch.nn.method import METHODS, Choices, Method, check_options
from s4d_torch.ssm import initialization, recurrence
from s4d_torch.ssm.compiled.scan import Blocks, available
from s4d_torch.ssm.compiled.stored import stored_blocks, stored_kernel, supports
from s4d_torch.ssm.constraint import CONSTRAINTS
from s4d_torch.ssm.discretization import DISCRETIZATIONS, Discrete, bilinear_low_rank
from s4d_torch.ssm.engine import ENGINES, Source, run, run_both_ways
from s4d_torch.ssm.kernel import cauchy, dense, krylov, softmax, softmax_step, vandermonde
from s4d_torch.ssm.pairs import readout, to_real
from s4d_torch.ssm.recurrence import DenseSystem, DiagonalSystem, System

T = TypeVar("T")
CACHED = 4  # systems and kernels kept in evaluation


class SSM(nn.Module):
    """``y = K * u + D u`` for ``d_model`` channels, each a state space of size ``d_state``.

    u, y are (batch, length, d_model). ``A``, ``B``, ``C`` (d_model, modes), ``D``, ``dt``
    (d_model,) and ``P`` (d_model, rank, modes) give the physical values, in the double precision
    they are used in. The stored parameters are real tensors: complex ones lose their imaginary
    part in ``.to(float64)`` and are refused by safetensors and some optimisers.

    A bidirectional module has a second C for the kernel that looks ahead, (2, d_model, modes).
    ``engine`` names how a sequence is run (``auto``, ``fft``, ``chunk`` or ``scan``); the answer is
    the same.
    """

    raw_decay: Tensor  # (n_ssm, modes), -Re(A) behind its constraint
    frequency: Tensor  # (n_ssm, modes), Im(A); absent for real modes
    raw_P: Tensor  # (n_ssm, rank, modes, 2); DPLR only
    raw_B: Tensor  # (n_ssm, modes, 2); real modes have no last axis
    raw_C: Tensor  # ([2,] d_model, modes, 2)
    D: Tensor  # (d_model,)
    log_dt: Tensor  # (d_model,)

    def __init__(
        self,
        d_model: int,
        d_state: int = 64,
        *,
        method: Method | None = None,
        engine: str = "auto",
        generator: Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **choices: Unpack[Choices],
    ) -> None:
        super().__init__()
        validate.positive_integer("d_model", d_model)
        validate.positive_integer("d_state", d_state)
        validate.parameter_dtype(dtype)
        check_options(SSM, choices)
        method = METHODS["s4d"] if method is None else method
        if not isinstance(method, Method):
            raise TypeError(f"method must be a Method such as METHODS['s4d'], got {method!r}")
        if engine not in ENGINES:
            raise ValueError(unknown("engine", engine, ENGINES))
        self.method, self.engine = method.replace(**choices), engine
        self.d_model, self.d_state = d_model, d_state
        if d_state % 2 and self.method.pairs:
            raise ValueError(
                f"d_state counts conjugate pairs twice and must be even, got {d_state}; "
                f"use {d_state + 1}"
            )
        self.n_ssm = self.method.n_ssm or d_model
        if d_model % self.n_ssm:
            raise ValueError(f"n_ssm must divide d_model={d_model}, got n_ssm={self.n_ssm}")
        factory = {
            "device": torch.get_default_device() if device is None else device,
            "dtype": dtype or torch.get_default_dtype(),
        }
        with torch.device("cpu"):  # also where the default device is another one, such as meta
            self._initialize(generator, factory)
        self._seen: list[Tensor] = []
        self._made: dict[tuple[str, int, float], Any] = {}

    def _initialize(self, generator: Generator | None, factory: dict[str, Any]) -> None:
        """Draw every parameter in double precision, in one order, then store it raw."""
        method, sets = self.method, self.n_ssm
        if method.structure == "dplr":
            start = initialization.dplr(method.init, self.d_state, sets)
        else:
            start = initialization.diagonal(
                method.init,
                self.d_state,
                sets,
                B_init=method.B_init,
                imag_scale=method.imag_scale,
                random_imag=method.random_imag,
                random_real=method.random_real,
                generator=generator,
            )
        kernels = (2,) if method.bidirectional else ()
        C = initialization.output_matrix(
            (*kernels, self.d_model, start.A.shape[-1]),
            C_init=method.C_init,
            real=not method.pairs,
            generator=generator,
        )
        log_dt = initialization.log_timestep(self.d_model, method.dt_min, method.dt_max, generator)

        def store(name: str, value: Tensor, train: bool) -> None:
            value = value.to(**factory)
            if train:
                self.register_parameter(name, nn.Parameter(value))
            else:
                self.register_buffer(name, value)

        store("raw_decay", CONSTRAINTS[method.constraint].inverse(-start.A.real), method.train_A)
        if method.pairs:
            store("frequency", start.A.imag.clone(), method.train_A)
        if start.P is not None:
            store("raw_P", self._to_stored(start.P), method.train_A)
        store("raw_B", self._to_stored(start.B), method.train_B)
        store("raw_C", self._to_stored(C), True)
        store("D", initialization.normal((self.d_model,), generator), True)
        store("log_dt", log_dt, method.train_dt)

    # -- physical values ---------------------------------------------------------------------

    @property
    def A(self) -> Tensor:
        """The diagonal of A (Lambda for DPLR), (d_model, modes)."""
        decay = CONSTRAINTS[self.method.constraint].forward(_double(self.raw_decay))
        imag = _double(self.frequency) if self.method.pairs else torch.zeros_like(decay)
        return self._per_channel(torch.complex(-decay, imag))

    @property
    def B(self) -> Tensor:
        """(d_model, modes)."""
        return self._per_channel(self._from_stored(self.raw_B))

    @property
    def C(self) -> Tensor:
        """(d_model, modes), or (2, d_model, modes) if bidirectional."""
        return self._from_stored(self.raw_C)

    @property
    def P(self) -> Tensor:
        """The low-rank term of a DPLR system, (d_model, rank, modes)."""
        if self.method.structure != "dplr":
            raise AttributeError("only structure 'dplr' has a low-rank term P")
        return self._per_channel(self._from_stored(self.raw_P))

    @property
    def dt(self) -> Tensor:
        """The step size of each channel, (d_model,)."""
        return _double(self.log_dt).exp()

    def _per_channel(self, x: Tensor) -> Tensor:
        """Copies of A, B serve neighbouring channels: (n_ssm, ...) -> (d_model, ...)."""
        return x.repeat_interleave(self.d_model // self.n_ssm, dim=0)

    def _to_stored(self, x: Tensor) -> Tensor:
        return torch.view_as_real(x).clone() if self.method.pairs else x.real.clone()

    def _from_stored(self, raw: Tensor) -> Tensor:
        raw = _double(raw)
        if self.method.pairs:
            return torch.complex(raw[..., 0], raw[..., 1])
        return torch.complex(raw, torch.zeros_like(raw))

    # -- kernel and step ---------------------------------------------------------------------

    def kernel(self, length: int, *, rate: float = 1.0) -> Tensor:
        """The discrete kernel K, (d_model, length) real; bidirectional: (2, d_model, length)."""
        validate.positive_integer("length", length)
        validate.sampling_rate(rate)
        return self._kept(("kernel", length, rate), lambda: self._kernel(length, rate))

    def _kernel(self, length: int, rate: float) -> Tensor:
        if self._has_compiled_kernel:
            rule, constraint = self.method.discretization, self.method.constraint
            frequency = self.frequency if self.method.pairs else None
            stored = (self.raw_decay, frequency, self.raw_B, self.raw_C, self.log_dt)
            return stored_kernel(rule, constraint, rate, length, *stored)
        C, pairs = self.C, self.method.pairs
        if self.method.structure == "dplr":
            step = bilinear_low_rank(self.A, self.P, self.B, rate * self.dt[:, None])
            K = krylov(dense(step), to_real(step.B_now), readout(C), length)
        elif self.method.kernel == "cauchy":
            A, B, dt = self.A, self.B, rate * self.dt[:, None]
            P = torch.zeros_like(B)[:, None]
            K = cauchy(A, P, B, C, dt, bilinear_low_rank(A, P, B, dt), length)
        elif self.method.kernel == "softmax":
            K = softmax(self._discrete(rate), C, self._horizon, length, pairs=pairs)
        else:
            K = vandermonde(self._discrete(rate), C, length, pairs=pairs)
        return K.to(self._compute_dtype)

    @property
    def _has_compiled_kernel(self) -> bool:
        """In float64 the powers need more care than the compiled code takes."""
        method = self.method
        return (
            method.kernel == "vandermonde"
            and supports(method.discretization, method.constraint)
            and self.raw_C.dtype == torch.float32
            and available(self.raw_C.device, torch.float32)
        )

    def _discrete(self, rate: float) -> Discrete:
        rule = DISCRETIZATIONS[self.method.discretization]
        return rule(self.A, self.B, rate * self.dt[:, None])

    @property
    def _horizon(self) -> Tensor:
        """``A dt L`` of a softmax kernel: a span of time, so no change of rate alters it."""
        return self.A * self.dt[:, None] * self.method.softmax_length

    def _system(self, rate: float) -> System:
        return self._kept(("system", 0, rate), lambda: self._make_system(rate))

    def _make_system(self, rate: float) -> System:
        if self.method.structure == "dplr":
            step = bilinear_low_rank(self.A, self.P, self.B, rate * self.dt[:, None])
            return DenseSystem.from_low_rank(step, self.C)
        return self._diagonal_system(rate, self.C)

    def _diagonal_system(self, rate: float, C: Tensor) -> DiagonalSystem:
        discrete = self._discrete(rate)
        if self.method.kernel == "softmax":
            discrete, C = softmax_step(discrete, C, self._horizon)
        return DiagonalSystem(discrete, C, self.method.pairs)

    def _blocks(self, rate: float, ahead: int = 0) -> Blocks:
        """The tables of the compiled scan: with D, or ``ahead`` for the kernel that looks ahead."""
        return self._kept(("blocks", ahead, rate), lambda: self._make_blocks(rate, ahead))

    def _make_blocks(self, rate: float, ahead: int = 0) -> Blocks:
        raw_C = self.raw_C[ahead] if self.method.bidirectional else self.raw_C
        D = torch.zeros_like(self.D) if ahead else self.D
        rule, constraint = self.method.discretization, self.method.constraint
        stored_dtype = self.raw_C.dtype == self._compute_dtype  # bfloat16 goes through torch
        if self.method.kernel == "softmax" or not (stored_dtype and supports(rule, constraint)):
            C = self._from_stored(raw_C)
            return self._diagonal_system(rate, C).blocks(D, self._compute_dtype)
        frequency = self.frequency if self.method.pairs else None
        stored = (self.raw_decay, frequency, self.raw_B, raw_C, self.log_dt, D)
        return stored_blocks(rule, constraint, rate, *stored)

    # -- calls -------------------------------------------------------------------------------

    def forward(
        self,
        u: Tensor,
        state: Tensor | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        rate: float = 1.0,
        return_state: bool = True,
        zero_padding: bool = True,
    ) -> tuple[Tensor, Tensor | None]:
        """``y, state``: the output and the state at the end of each sequence.

        ``state`` goes on where an earlier call stopped. ``lengths`` (batch,) marks a right-padded
        batch: what lies beyond is ignored, and the output there is 0. ``rate`` multiplies dt: a
        model trained at 16 kHz reads every second sample at ``rate=2``. ``return_state=False``
        saves the work of the end state and returns None for it, as a bidirectional module does.
        ``zero_padding=False`` saves the zeros in the output, for a caller who ignores what lies
        beyond the ends anyway; the padding of ``u`` has to be finite then.
        """
        validate.signal("u", u, "(batch, length, d_model)", self.d_model, self.raw_C.dtype)
        validate.sampling_rate(rate)
        batch, length = u.shape[:2]
        lengths = validate.sequence_lengths(lengths, (batch,), length, u.device)
        if state is not None:
            self._check_causal("continue from a state")
            shape = (batch, self.d_model, self.d_state)
            validate.carried_state(state, shape, self._state_dtype, u.device)
        with torch.autocast(u.device.type, enabled=False):
            x = u.to(self._compute_dtype)
            valid = None
            ahead = self.method.bidirectional  # padding would be heard
            if lengths is not None and (zero_padding or return_state or ahead):
                valid = (torch.arange(length, device=u.device) < lengths[:, None])[..., None]
                x = torch.where(valid, x, 0.0)
            source = Source(
                self.method.structure == "diagonal",
                self._has_compiled_kernel,
                system=lambda: self._system(rate),
                kernel=lambda: self.kernel(length, rate=rate),
                blocks=lambda ahead: self._blocks(rate, ahead),
                D=self.D,
            )
            if self.method.bidirectional:
                y, state = run_both_ways(source, x, engine=self.engine), None
            else:
                y, state = run(
                    source, x, state, lengths, engine=self.engine, need_state=return_state
                )
            if valid is not None and zero_padding:
                y = torch.where(valid, y, 0.0)
            return y.to(u.dtype), state

    def step(self, u: Tensor, state: Tensor, *, rate: float = 1.0) -> tuple[Tensor, Tensor]:
        """One sample: u (batch, d_model) -> y (batch, d_model) and the next state."""
        self._check_causal("step")
        validate.signal("u", u, "(batch, d_model)", self.d_model, self.raw_C.dtype)
        validate.sampling_rate(rate)
        shape = (u.shape[0], self.d_model, self.d_state)
        validate.carried_state(state, shape, self._state_dtype, u.device)
        with torch.autocast(u.device.type, enabled=False):
            x = u.to(self._compute_dtype)
            y, state = recurrence.step(self._system(rate), x, state)
            return (y + self.D.to(y.dtype) * x).to(u.dtype), state

    def initial_state(self, batch_size: int) -> Tensor:
        """A state of zeros, (batch_size, d_model, d_state), in double precision."""
        self._check_causal("have a state")
        validate.positive_integer("batch_size", batch_size)
        shape = (batch_size, self.d_model, self.d_state)
        return torch.zeros(shape, dtype=self._state_dtype, device=self.raw_C.device)

    def _check_causal(self, action: str) -> None:
        if self.method.bidirectional:
            raise ValueError(
                f"a bidirectional layer looks ahead and cannot {action}; use bidirectional=False"
            )

    # -- precision and cache -----------------------------------------------------------------

    @property
    def _compute_dtype(self) -> torch.dtype:
        """float32 for parameters of lower precision, else their own dtype."""
        dtype = self.raw_C.dtype
        return torch.float32 if dtype in validate.LOW_PRECISION else dtype

    @property
    def _state_dtype(self) -> torch.dtype:
        return _double_dtype(self.raw_C.device)

    def _kept(self, key: tuple[str, int, float], make: Callable[[], T]) -> T:
        """In evaluation without gradients, keep what was made until a parameter changes.

        Values are compared, not version counters, which miss a write through ``.data``.
        """
        if self.training or torch.is_grad_enabled() or torch.compiler.is_compiling():
            return make()
        now = [*self.parameters(), *self.buffers()]
        if len(now) != len(self._seen) or not all(
            a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
            for a, b in zip(now, self._seen, strict=True)
        ):
            self._seen, self._made = [x.detach().clone() for x in now], {}
        if key not in self._made:
            if len(self._made) >= CACHED:
                self._made.pop(next(iter(self._made)))
            self._made[key] = make()
        kept: T = self._made[key]
        return kept

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_seen": [], "_made": {}}

    def extra_repr(self) -> str:
        changed = [
            f"{name}={value!r}"
            for name, value in vars(self.method).items()
            if value != getattr(Method(), name)
        ]
        return ", ".join([str(self.d_model), f"d_state={self.d_state}", *changed])


def _double_dtype(device: torch.device) -> torch.dtype:
    # Apple's GPUs have no float64
    return torch.float32 if device.type == "mps" else torch.float64


def _double(x: Tensor) -> Tensor:
    return x.to(_double_dtype(x.device))
