"""A stream in machine code: its arrays, and the calls on them."""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from s4d_torch.nn.plan import ModelPlan
from s4d_torch.nn.state import ModelState
from s4d_torch.nn.stepping import sampling
from s4d_torch.nn.stepping.layout import BLOCK, GROUPS, INPUTS, MODES, RANK, W
from s4d_torch.nn.stepping.tables import StepTables, make_tables
from s4d_torch.ssm.compiled.runtime import compiled_module, first_call

Array = Any
NO_DRAWS = (np.zeros(0), 1.0, 1)  # and a temperature and top_k, where nothing is chosen


class Machine:
    """The arrays of one stream, as ``layout`` has them, and the one function that works on them."""

    def __init__(self, plan: ModelPlan, batch_size: int, tables: StepTables | None = None) -> None:
        model = plan.model
        self._model, self._plan, self._batch_size = model, plan, batch_size
        rows, dtype = model.towers * batch_size, model._each_block()[0].layer.ssm.raw_C.dtype
        self._dtype, self._tables = dtype, tables or make_tables(plan, rows, dtype)
        options, layers = self._tables.plan, len(plan.blocks)
        groups, modes, rank = (int(options[place]) for place in (GROUPS, MODES, RANK))
        self._clock = np.zeros(1 + 2 * layers * groups, dtype=np.int64)
        self._modes = _zeros(torch.float64, layers, groups, rows, modes, 2, W)
        self._ring = _zeros(dtype, layers, groups, rows, 2, BLOCK, W)
        self._pool = _zeros(torch.float64, rows, groups * W + W)
        room = _zeros(dtype, (rows + 5) * groups * W)
        work = _zeros(torch.float64, (2 * BLOCK + rank) * W + model.d_output)
        self._constant = (options, self._tables.weights, self._tables.cells, room, work)
        self._moving = self._clock, *_flat(self._modes, self._ring, self._pool)
        (self._u,), self._inputs = self._make_inputs(1)
        (self._y,), self._outputs = self._make_outputs(1)
        self._run = _code().make_run(rank > 0, not sampling.obstacles(model))
        both = (*self._inputs, self._outputs, *NO_DRAWS)
        self._no_step, self._step = (0, *both), (*self._constant, *self._moving, 1, *both)
        self._started = model.initial_state(batch_size)
        self._begin()
        first_call("the step", lambda: self._call(*self._no_step), [self._run])

    def _call(self, *arguments: Any, moving: tuple[Array, ...] | None = None) -> bool:
        done: bool = self._run(*self._constant, *(moving or self._moving), *arguments)
        return done

    def _make_inputs(self, length: int) -> tuple[Tensor, list[Array]]:
        """What samples (length, batch, ...) are copied to, and the arrays that it is."""
        lead = (length, self._batch_size, *((2,) if self._model.towers == 2 else ()))
        if self._plan.tokens:
            u, tokens = _zeros(self._dtype, 0), _zeros(torch.int64, *lead)
        else:
            inputs = int(self._tables.plan[INPUTS])
            u, tokens = _zeros(self._dtype, *lead, inputs), _zeros(torch.int64, 0)
        with torch.inference_mode(False):  # so that it can be written to in any mode
            inlet = torch.from_numpy(tokens if self._plan.tokens else u[..., : self._plan.d_input])
        return inlet, _flat(u, tokens)

    def _make_outputs(self, length: int) -> tuple[Array, Array]:
        """Answers (length, batch, d_output), and the flat array that they begin."""
        shape = (length, self._batch_size, self._model.d_output)
        flat = _zeros(self._dtype, int(np.prod(shape)) + W)
        return flat[:-W].reshape(shape), flat

    def fork(self) -> Machine:
        return Machine(self._plan, self._batch_size, self._tables)

    # -- states ------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """At time 0. Each group first runs at a time of its own: so all steps take equally long."""
        groups = len(self._clock) // 2
        self._clock[0], self._clock[1 : 1 + groups] = 0, BLOCK
        self._clock[1 + groups :] = 1 + np.arange(groups) * BLOCK // groups

    def start(self, state: ModelState, samples: int = BLOCK) -> None:
        """Go on from a state: for ever, or for fewer samples than a block."""
        self._started = state
        systems = zip(self._tables.systems, state.layers, strict=True)
        layers = np.stack([_as_array(plan.meet(x.detach())) for plan, x in systems])
        self._modes[:] = self._to_modes(layers)  # from (layers, rows, H, S)
        self._ring[:] = 0
        if layers.any():
            sent = self._tables.rows(samples) @ layers.transpose(0, 2, 3, 1)
            planar = _grouped(sent, 1)  # (layers, groups, W, samples, rows)
            self._ring[:, :, :, 1, :samples] = planar.transpose(0, 1, 4, 3, 2)
        self._pool[:, : self._plan.d_model] = _as_array(state.total)
        self._pool[:, -W:] = _as_array(state.samples)[:, None]
        self._begin()

    @property
    def state(self) -> ModelState:
        """Of copies of the modes that catch up with the last sample, and of that sample."""
        clock, modes, ring = self._clock.copy(), self._modes.copy(), self._ring.copy()
        if clock[0] == 0:
            layers, *pooled = self._started
            return ModelState(tuple(x.detach().clone() for x in layers), *map(torch.clone, pooled))
        clock[0] -= 1
        clock[1 + len(clock) // 2 :] = clock[0]  # all are due then
        moving = (clock, *_flat(modes, ring, self._pool))
        self._call(*self._no_step, moving=moving)
        last = torch.from_numpy(self._channels(ring[:, :, :, 0, clock[0] % BLOCK])).double()
        met = torch.from_numpy(self._from_modes(modes))
        each = zip(self._tables.systems, met, last, strict=True)
        sums = torch.from_numpy(self._pool.copy())
        return ModelState(
            tuple(plan.leave(*ends).contiguous() for plan, *ends in each),
            total=sums[:, : self._plan.d_model].contiguous(),
            samples=sums[:, -1].contiguous(),
        )

    def _to_modes(self, layers: Array) -> Array:
        """(layers, rows, H, S) -> (layers, groups, rows, modes, 2, W)."""
        pairs = layers.shape[3] > self._modes.shape[3]  # else all modes are real
        scaled = (layers.view(np.complex128) if pairs else layers) / self._tables.scale
        planar = _grouped(scaled.view(np.float64).reshape(*scaled.shape, 2), 2)
        return planar.transpose(0, 2, 1, 4, 5, 3)

    def _from_modes(self, modes: Array) -> Array:
        """The way back."""
        planar = modes.transpose(0, 2, 1, 5, 3, 4)  # (layers, rows, groups, W, modes, 2)
        each = planar.reshape(*planar.shape[:2], -1, *planar.shape[4:])[:, :, : self._plan.d_model]
        states = np.ascontiguousarray(each).view(np.complex128)[..., 0] * self._tables.scale
        pairs = self._plan.d_state > states.shape[3]
        return states.view(np.float64) if pairs else np.ascontiguousarray(states.real)

    def _channels(self, x: Array) -> Array:
        """(layers, groups, rows, W) -> (layers, rows, H)."""
        flat = x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)
        return np.ascontiguousarray(flat[:, :, : self._plan.d_model])

    # -- samples -----------------------------------------------------------------------------------

    def push(self, u: Tensor) -> Tensor:
        self._u.copy_(u.detach() if u.requires_grad else u)
        if not self._run(*self._step):
            self._model._check_values(u)
        return torch.from_numpy(self._y.copy())

    def push_many(self, u: Tensor) -> Tensor:
        """u (length, batch, ...) -> y (length, batch, d_output)."""
        inlet, inputs = self._make_inputs(len(u))
        inlet.copy_(u.detach())
        y, outputs = self._make_outputs(len(u))
        if not self._call(len(u), *inputs, outputs, *NO_DRAWS):
            self._model._check_values(u)
        return torch.from_numpy(y)

    def sample(
        self, scores: Tensor, draws: Tensor, temperature: float, top_k: int
    ) -> tuple[Tensor, Tensor]:
        following, outputs = self._make_outputs(1)
        following[0] = _as_array(scores)
        chosen, drawn = np.zeros(draws.shape, dtype=np.int64), _as_array(draws.cpu())
        arrays = (self._inputs[0], *_flat(chosen), outputs, *_flat(drawn))
        if not self._call(len(draws), *arrays, temperature, top_k):
            raise sampling.not_numbers()
        return torch.from_numpy(chosen), torch.from_numpy(following[0])


def _zeros(dtype: torch.dtype, *shape: int) -> Array:
    """An array that begins where a cache line does, as those of torch do, and NumPy's may not."""
    return torch.zeros(shape, dtype=dtype, device="cpu").numpy()


def _flat(*arrays: Array) -> list[Array]:
    return [array.reshape(-1) for array in arrays]


def _grouped(x: Array, axis: int) -> Array:
    """H channels along an axis -> (groups, W), with zeros for those that are not there."""
    lacking = -x.shape[axis] % W
    if lacking:
        x = np.pad(x, [(0, lacking if i == axis else 0) for i in range(x.ndim)])
    return x.reshape(*x.shape[:axis], -1, W, *x.shape[axis + 1 :])


def _as_array(x: Tensor) -> Array:
    """Contiguous, and without a negative bit, which NumPy does not know."""
    return x.detach().resolve_neg().contiguous().numpy()


@cache
def _code() -> ModuleType:
    """The compiled code; slow to import, so not before it is used."""
    return compiled_module("s4d_torch.nn.stepping.step_code")
