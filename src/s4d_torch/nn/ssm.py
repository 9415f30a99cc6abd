"""The linear state space module: parameters stored raw and real, read as physical values."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Self, Unpack

import torch
from torch import Generator, Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from s4d_torch._registry import unknown
from s4d_torch.nn import timing, validate
from s4d_torch.nn.method import METHODS, Choices, Method, check_options
from s4d_torch.nn.packed import run_packed
from s4d_torch.ssm import initialization, irregular, recurrence
from s4d_torch.ssm.autodiff import at_hand
from s4d_torch.ssm.constraint import CONSTRAINTS
from s4d_torch.ssm.discretization import DISCRETIZATIONS, looks_back
from s4d_torch.ssm.engine import ENGINES, choose, run, run_both_ways
from s4d_torch.ssm.gaps import Gaps
from s4d_torch.ssm.precision import double_dtype, full_precision
from s4d_torch.ssm.state_space import KERNELS, StateSpace

CACHED = 4  # sampling rates whose state spaces are kept in evaluation


class SSM(nn.Module):
    """``y = K * u + D u`` for ``d_model`` channels, each a state space of size ``d_state``.

    u, y are (batch, length, d_model). ``A``, ``B``, ``C`` (d_model, modes), ``D``, ``dt``
    (d_model,) and ``P`` (d_model, rank, modes) give the physical values, in the double precision
    they are used in. The stored parameters are real tensors: complex ones lose their imaginary
    part in ``.to(float64)`` and are refused by safetensors and some optimisers.

    A bidirectional module has a second C for the kernel that looks ahead, (2, d_model, modes).
    ``engine`` names how a sequence is run (``auto``, or one of :mod:`s4d_torch.ssm.engine`); the
    answer is the same.
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
        validate.one_of("engine", engine, ENGINES)
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
        self._look_up()
        self._kept: tuple[list[Tensor], dict[float, StateSpace]] = ([], {})

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
        shape = (*((2,) if method.bidirectional else ()), self.d_model, start.A.shape[-1])
        C = initialization.output_matrix(
            shape, C_init=method.C_init, real=not method.pairs, generator=generator
        )
        log_dt = initialization.log_timestep(self.d_model, method.dt_min, method.dt_max, generator)
        B = initialization.gamma(start.A, log_dt) if method.B_init == "gamma" else start.B

        self._shapes: dict[str, tuple[int, ...]] = {}

        def store(name: str, value: Tensor, train: bool) -> None:
            value = value.to(**factory)
            self._shapes[name] = tuple(value.shape)
            if train:
                self.register_parameter(name, nn.Parameter(value))
            else:
                self.register_buffer(name, value)

        store("raw_decay", CONSTRAINTS[method.constraint].inverse(-start.A.real), method.train_A)
        if method.pairs:
            store("frequency", start.A.imag.clone(), method.train_A)
        if start.P is not None:
            store("raw_P", self._to_stored(start.P), method.train_A)
        store("raw_B", self._to_stored(B), method.train_B)
        store("raw_C", self._to_stored(C), True)
        store("D", initialization.normal((self.d_model,), generator), True)
        store("log_dt", log_dt, method.train_dt)

    @property
    def A(self) -> Tensor:
        """The diagonal of A (Lambda for DPLR), (d_model, modes)."""
        return self._stored(1.0).A

    @property
    def B(self) -> Tensor:
        """(d_model, modes)."""
        return self._stored(1.0).B

    @property
    def C(self) -> Tensor:
        """(d_model, modes), or (2, d_model, modes) if bidirectional."""
        return self._stored(1.0).C

    @property
    def P(self) -> Tensor:
        """The low-rank term of a DPLR system, (d_model, rank, modes)."""
        P = self._stored(1.0).P
        if P is None:
            raise AttributeError("only structure 'dplr' has a low-rank term P")
        return P

    @property
    def dt(self) -> Tensor:
        """The step size of each channel, (d_model,)."""
        return self._stored(1.0).dt

    def _to_stored(self, x: Tensor) -> Tensor:
        return torch.view_as_real(x).clone() if self.method.pairs else x.real.clone()

    def _stored(self, rate: float, memory: dict[Any, Any] | None = None) -> StateSpace:
        stored: dict[str, Any] = {name: getattr(self, name) for name in self._shapes}
        for name, x in stored.items():  # a parameter may have been replaced by another
            if x.shape != self._shapes[name]:
                raise ValueError(
                    f"{name} has shape {tuple(x.shape)}, expected {self._shapes[name]} as it was "
                    "made; make another layer for other sizes"
                )
        stored.setdefault("frequency", None)
        stored |= {"softmax_length": self.method.softmax_length, "rate": rate, "memory": memory}
        return StateSpace(*self._choices, **stored, dt_scales=self.method.dt_scales)

    def _state_space(self, rate: float) -> StateSpace:
        """What the engines work with; in evaluation without gradients, kept until a parameter
        changes, with all that was made of it.

        Values are compared, not version counters, which miss a write through ``.data``; where they
        are not at hand, on another device, all is made anew, without a wait. Threads may be here
        at the same time: each goes on with what it found or made.
        """
        if self.training or torch.is_grad_enabled() or not at_hand(self.raw_C):
            return self._stored(rate)
        now = [*self.parameters(), *self.buffers()]
        seen, spaces = self._kept
        if len(now) != len(seen) or not all(
            a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
            for a, b in zip(now, seen, strict=True)
        ):
            seen, spaces = [x.detach().clone() for x in now], {}
        if rate not in spaces:
            latest = list(spaces.items())[1 - CACHED :]
            spaces = dict([*latest, (rate, self._stored(rate, memory={}))])
            self._kept = seen, spaces
        return spaces[rate]

    def kernel(self, length: int, *, rate: float = 1.0, algorithm: str | None = None) -> Tensor:
        """The discrete kernel K, (d_model, length) real; bidirectional: (2, d_model, length).

        ``kernel="cauchy"`` knows two algorithms with the same result: ``"cauchy"``, sums over the
        modes, and ``"krylov"``, matrix products by doubling. Without a name it takes the faster
        one: Krylov for DPLR systems, the sums for diagonal ones, on every device.
        """
        validate.positive_integer("length", length)
        validate.sampling_rate(rate)
        algorithms = KERNELS[self.method.kernel].algorithms
        if algorithm is not None and algorithm not in algorithms:
            raise ValueError(
                unknown("algorithm", algorithm, algorithms)
                if algorithms
                else f"kernel {self.method.kernel!r} has one algorithm only, got {algorithm!r}; "
                "leave it out"
            )
        return self._state_space(rate).kernel(length, algorithm)

    @timing.outside_graphs
    def forward(
        self,
        u: Tensor | PackedSequence,
        state: Tensor | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        mask: Tensor | None = None,
        rate: timing.Rate = 1.0,
        resets: timing.Resets | None = None,
        cu_seqlens: Tensor | Sequence[int] | None = None,
        return_state: bool = True,
        _zero_ends: bool = True,
    ) -> tuple[Any, Tensor | None]:
        """``y, state``: the output and the state at the end of each sequence.

        ``state`` goes on where an earlier call stopped. ``lengths`` (batch,) marks a right-padded
        batch: what lies beyond is ignored, and the output there is 0. So does ``mask`` (batch,
        length), bool, True up to each end. A ``PackedSequence`` gives one. ``rate`` multiplies dt:
        a model trained at 16 kHz reads every second sample at ``rate=2``. A tensor (batch, length)
        is the time since the sample before of each sample, as a multiple of the training step: it
        need not be the same everywhere. ``return_state=False`` saves the work of the end state and
        returns None for it, as a bidirectional module does.

        ``resets`` (batch, length), bool, is True where a new sequence begins: the state before that
        sample is 0, and nobody looks ahead beyond it. ``cu_seqlens`` (n + 1,) are the offsets of n
        sequences packed one after the other, u (1, total, d_model); states are (n, ...) then.
        """
        if isinstance(u, PackedSequence):
            options: Any = {"rate": rate, "return_state": return_state}
            return run_packed(self.forward, u, state, lengths, mask, **options)
        # _zero_ends=False saves the zeros for a model, which ignores what lies beyond the ends; the
        # padding of u has to be finite then.
        lengths = self.read_lengths(u, lengths, mask)
        batch, length = u.shape[:2]
        read = timing.read_rate(rate, (batch, length), lengths, u)
        gaps, rate = (read, 1.0) if isinstance(read, Gaps) else (None, read)
        pieces = timing.read_resets(resets, cu_seqlens, lengths, u)
        if state is not None:
            self._check_causal("continue from a state")
            rows = len(pieces) if pieces is not None and pieces.rows is None else batch
            state = self._read_state(state, rows, u.device)
        with full_precision(u.device):
            space = self._state_space(rate)
            x, valid, both_ways = u.to(space.dtype), None, self.method.bidirectional
            if lengths is not None and (_zero_ends or return_state or both_ways):
                # whoever looks ahead would hear the padding
                valid = (torch.arange(length, device=u.device) < lengths[:, None])[..., None]
                x = torch.where(valid, x, 0.0)
            how: Any = {"engine": self.engine, "gaps": gaps, "pieces": pieces}
            if both_ways:
                y, state = run_both_ways(space, x, **how), None
            else:
                start = state if pieces is None else pieces.start(state)
                y, state = run(space, x, start, lengths, need_state=return_state, **how)
                if pieces is not None and state is not None:
                    state = pieces.end(state)
            if valid is not None and _zero_ends:
                y = torch.where(valid, y, 0.0)
            return y.to(u.dtype), state

    def stored_for_short(self, u: Tensor, rate: timing.Rate) -> tuple[Any, ...] | None:
        """The parameters for a block in one operation, if u is run term by term in training."""
        if isinstance(rate, Tensor | Gaps):
            return None
        validate.sampling_rate(rate)
        space = self._stored(rate)
        fits = u.dtype == space.dtype == self.raw_C.dtype and space.compiled_kernel
        if not fits or choose(self.engine, space, u, carried=False) != "direct":
            return None
        return space.as_stored()

    def read_lengths(
        self, u: Tensor, lengths: Tensor | Sequence[int] | None, mask: Tensor | None
    ) -> Tensor | None:
        """The lengths of a batch, on its device, once the batch is known to fit."""
        validate.signal("u", u, "(batch, length, d_model)", self.d_model, self.raw_C.dtype)
        validate.same_device(u, self.raw_C)
        lengths = validate.prefix_lengths(mask, lengths, u)
        return validate.sequence_lengths(lengths, tuple(u.shape[:1]), u.shape[1], u.device)

    def step(
        self, u: Tensor, state: Tensor, *, rate: timing.Rate = 1.0, resets: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """One sample: u (batch, d_model) -> y (batch, d_model) and the next state.

        ``rate`` may be a tensor (batch,), the time since the sample before of each sequence;
        ``resets`` (batch,) is True where a new sequence begins.
        """
        self._check_causal("step")
        validate.signal("u", u, "(batch, d_model)", self.d_model, self.raw_C.dtype)
        validate.same_device(u, self.raw_C)
        rate = timing.read_step_rate(rate, u)
        state = timing.begin_anew(self._read_state(state, u.shape[0], u.device), resets)
        with full_precision(u.device):
            if isinstance(rate, Tensor):
                space = self._state_space(1.0)
                y, state = irregular.step(space, u.to(space.dtype), rate, state)
                return y.to(u.dtype), state
            space = self._state_space(rate)
            x = u.to(space.dtype)
            y, state = recurrence.step(space.system(), x, state)
            return (y + self.D.to(y.dtype) * x).to(u.dtype), state

    def states(
        self, u: Tensor, at: Sequence[int], state: Tensor | None = None, *, rate: timing.Rate = 1.0
    ) -> Tensor:
        """The states just after the samples ``at``, (batch, len(at), d_model, state_size).

        Each sample is run once, in stretches from one of those places to the next. They rise, and
        count from 0; negative ones from the end.
        """
        self._check_causal("have a state")
        self.read_lengths(u, None, None)
        found = []
        for piece, times in timing.stretches(u, at, rate):
            _, state = self(piece, state, rate=times)
            assert state is not None
            found.append(state)
        return torch.stack(found, dim=1)

    def initial_state(self, batch_size: int) -> Tensor:
        """A state of zeros, (batch_size, d_model, state_size), in double precision."""
        self._check_causal("have a state")
        validate.positive_integer("batch_size", batch_size)
        shape = (batch_size, self.d_model, self.state_size)
        return torch.zeros(shape, dtype=self._state_dtype, device=self.raw_C.device)

    def _read_state(self, state: Tensor, rows: int, device: torch.device) -> Tensor:
        """A carried state; one without the sample before, where that belongs to it, had silence."""
        lacks = isinstance(state, Tensor) and state.shape[2:] == (self.d_state,)
        if lacks and self._looks_back:
            state = torch.nn.functional.pad(state, (0, 1))
        shape = (rows, self.d_model, self.state_size)
        validate.carried_state(state, shape, self._state_dtype, device)
        return state

    def _check_causal(self, action: str) -> None:
        validate.causal("layer", action, bidirectional=self.method.bidirectional)

    @property
    def state_size(self) -> int:
        """Numbers that a channel carries along: its state just after a sample, ``d_state``; one
        more, the sample itself, where the discretisation looks at the sample before (foh).
        """
        return self.d_state + int(self._looks_back)

    @property
    def _state_dtype(self) -> torch.dtype:
        return double_dtype(self.raw_C.device)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """With what the names stood for, which may no longer be registered."""
        other = memo[id(self)] = self.__new__(type(self))
        kept: dict[str, Any] = {"_choices": self._choices, "_kept": ([], {})}
        own = {name: value for name, value in vars(self).items() if name not in kept}
        vars(other).update(deepcopy(own, memo) | kept)
        return other

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_choices": None, "_kept": ([], {})}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._look_up()

    def _look_up(self) -> None:
        """What the names stand for; functions, which neither copies nor files should hold."""
        method = self.method
        rule, kernel = DISCRETIZATIONS[method.discretization], KERNELS[method.kernel]
        self._choices = CONSTRAINTS[method.constraint], rule, kernel
        self._looks_back = looks_back(rule)

    def extra_repr(self) -> str:
        usual = vars(Method())
        changed = [f"{k}={x!r}" for k, x in vars(self.method).items() if x != usual[k]]
        return ", ".join([str(self.d_model), f"d_state={self.d_state}", *changed])
