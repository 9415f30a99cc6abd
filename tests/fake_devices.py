"""GPUs that are not there: what a device would be asked to do, and how much memory it would take.

Fake tensors of torch have a shape, a dtype and a device, and no values. A program that runs with
them asks for no value on the way; a :class:`Watch` refuses what fake tensors allow but a GPU should
not be asked for, and :class:`Memory` counts what lies in its memory.
"""

import ctypes
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torchgen
from torch import Tensor
from torch._C._autograd import DeviceType
from torch._subclasses import FakeTensorMode
from torch.autograd.function import BackwardCFunction
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

DOUBLE = (torch.float64, torch.complex128)


@contextmanager
def fake_device(kind: str) -> Iterator[torch.device]:
    """Fake tensors on ``cuda`` or ``mps``, whether or not torch was built for it."""
    with ExitStack() as stack:
        stack.enter_context(_guard(kind))
        stack.enter_context(FakeTensorMode())
        yield torch.device(kind, 0)


@contextmanager
def _guard(kind: str) -> Iterator[None]:
    """A guard of the device, which autograd asks for its stream, where torch was built without.

    The one of the device meta does nothing, and serves. Torch has no way to register it in Python.
    """
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
        kinds = 1 + max(int(each) for each in DeviceType.__members__.values())
        name = "_ZN3c104impl26device_guard_impl_registryE"
        guards = (ctypes.c_void_p * kinds).in_dll(library, name)
    except (OSError, ValueError):
        pytest.skip("torch keeps its guards of devices elsewhere on this system")
    place = int(DeviceType.__members__[kind.upper()])
    before = guards[place]
    guards[place] = before or guards[int(DeviceType.Meta)]
    try:
        yield
    finally:
        guards[place] = before


class Watch(TorchDispatchMode):
    """Refuses tensors elsewhere, and with them every transfer, values, and float64 on mps.

    ``doubles`` counts the real numbers of the largest tensor in double precision by its origin.
    """

    def __init__(self, device: torch.device, *, copies: bool = False) -> None:
        super().__init__()
        self.device, self.copies = device, copies
        self.operators: set[Any] = set()
        self.copied: list[dict[str, Any]] = []  # how, each time that something came to the device
        self.doubles: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.operators.add(func)
        name = func.name()
        if torch.Tag.data_dependent_output in func.tags or "check_errors" in name:
            raise AssertionError(f"{name} asks {self.device} for a value")
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        output = func(*args, **kwargs)
        made = [x for x in tree_leaves(output) if isinstance(x, Tensor)]
        if self.copies and all(x.is_cpu for x in given):  # a list, on its way to the device
            if given and made and made[0].device == self.device:
                self.copied.append(kwargs)
            return output
        for x in (*given, *made):
            if x.device != self.device:
                raise AssertionError(f"{name} has a tensor on {x.device}, {tuple(x.shape)}")
        doubles = [x for x in made if x.dtype in DOUBLE]
        if kwargs.get("dtype") in DOUBLE and "sum" in name:
            doubles += given[:1]  # a sum in another precision reads a copy of all that it adds
        if doubles and self.device.type == "mps":
            raise AssertionError(f"{name} makes float64, which mps does not have")
        for x in doubles:
            numbers = x.numel() * (2 if x.is_complex() else 1)
            self.doubles[name] = max(numbers, self.doubles.get(name, 0))
        return output


# -- gradients -------------------------------------------------------------------------------------


def gradients(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], given: Sequence[Tensor] | None = None
) -> list[Tensor | None]:
    """Those of the outputs, whose own are ones if none are ``given``, by the nodes of autograd.

    What ``torch.autograd.grad`` does, whose engine asks an accelerator for its stream, and for no
    other reason has to have one.
    """
    order = _last_first([y.grad_fn for y in outputs])
    arrived: dict[Any, dict[int, Tensor]] = {node: {} for node in order}
    for i, y in enumerate(outputs):
        _add(arrived[y.grad_fn], y.output_nr, torch.ones_like(y) if given is None else given[i])
    found: dict[int, Tensor] = {}
    with torch.no_grad():
        for place, node in enumerate(order):
            order[place] = None
            _pass_on(node, arrived.pop(node), arrived, found)
    return [found.get(id(x)) for x in inputs]


def _last_first(roots: Sequence[Any]) -> list[Any]:
    """All nodes of a graph, each before those that it sends gradients to."""
    ended: list[Any] = []
    seen = set()
    for root in roots:
        stack = [] if root in seen else [(root, iter(root.next_functions))]
        seen.add(root)
        while stack:
            following = stack[-1][1]
            for after, _ in following:
                if after is not None and after not in seen:
                    seen.add(after)
                    stack.append((after, iter(after.next_functions)))
                    break
            else:
                ended.append(stack.pop()[0])
    return ended[::-1]


def _pass_on(
    node: Any, given: dict[int, Tensor], arrived: dict[Any, Any], found: dict[int, Tensor]
) -> None:
    if hasattr(node, "variable"):
        found[id(node.variable)] = given[0]
    if hasattr(node, "variable") or not given:
        return
    call = node.apply if isinstance(node, BackwardCFunction) else node
    arguments = [given.pop(i, None) for i in range(len(node._input_metadata))]
    results = call(*arguments)
    del arguments
    results = results if isinstance(results, tuple) else (results,)
    edges = node.next_functions
    assert all(x is None for x in results[len(edges) :])  # those of options, which come last
    for (after, place), grad in zip(edges, results, strict=False):
        if after is not None and grad is not None:
            wanted = after._input_metadata[place]
            _add(arrived[after], place, grad.sum_to_size(tuple(wanted.shape)).to(wanted.dtype))


def _add(sums: dict[int, Tensor], place: int, grad: Tensor) -> None:
    sums[place] = sums[place] + grad if place in sums else grad


# -- memory ----------------------------------------------------------------------------------------


class Memory(TorchDispatchMode):
    """How many bytes are alive at most, beyond what was there before, each storage counted once.

    What an operator takes for itself while it runs is not seen.
    """

    def __init__(self, *before: Tensor) -> None:
        super().__init__()
        self.before = {_storage(x).cdata for x in before}
        self.alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self.kept: dict[int, Tensor] = {}
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        for x in tree_leaves(output):
            if isinstance(x, Tensor) and _storage(x).cdata not in self.before:
                self.alive[_storage(x).cdata] = _storage(x), x.untyped_storage().nbytes()
        if sum(size for _, size in self.alive.values()) > self.peak:
            self.peak = max(self.peak, self.now())
        return output

    def now(self) -> int:
        self.alive = {k: (x, size) for k, (x, size) in self.alive.items() if not x.expired()}
        return sum(size for _, size in self.alive.values())

    def keeping(self) -> Any:
        """What is saved for a backward pass goes when it is read, as torch's own engine does it."""

        def pack(x: Tensor) -> int:
            self.kept[len(self.kept)] = x
            return len(self.kept) - 1

        return torch.autograd.graph.saved_tensors_hooks(pack, self._read)

    def _read(self, place: int) -> Tensor:
        x, self.kept[place] = self.kept[place], None  # type: ignore[assignment]
        return x


def _storage(x: Tensor) -> StorageWeakRef:
    return StorageWeakRef(x.untyped_storage())


def memory_of_training(
    make: Callable[[torch.device], torch.nn.Module],
    call: Callable[[Any, Tensor], Tensor],
    shape: tuple[int, ...],
) -> tuple[float, float, float]:
    """Of a forward pass at its peak, kept after it, and of a backward pass, by the size of u.

    Beyond the input, the parameters and the gradient of the output, which are there before.
    """
    with fake_device("cuda") as device:
        module, u = make(device), torch.empty(shape, device=device, requires_grad=True)
        grad = torch.empty_like(u)
        memory = Memory(u, grad, *module.parameters(), *module.buffers())
        with memory:
            with memory.keeping():
                y = call(module, u)
            forward, kept = memory.peak, memory.now()
            memory.peak = 0
            gradients([y], [u, *module.parameters()], [grad])
        size = u.untyped_storage().nbytes()
        return forward / size, kept / size, memory.peak / size


# -- operators -------------------------------------------------------------------------------------


def code_for(kind: str) -> Callable[[Any], bool]:
    """Whether an operator has code for ``CUDA`` or ``MPS``, for some dtype, by torch's table."""
    packaged = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"
    table = {}
    for entry in packaged.read_text("utf-8").split("\n- func: ")[1:]:
        delegate = re.search(r"structured_delegate: (\S+)", entry)
        listed = re.search(r"  dispatch:\n((?:    .*\n)*)", entry)
        lines = listed[1].splitlines() if listed else []
        keys = {name.strip() for line in lines for name in line.split(":")[0].split(",")}
        table[entry[: entry.index("(")]] = keys, delegate and delegate[1]

    def implemented(operator: Any) -> bool:
        keys, delegate = table[operator.name().removeprefix("aten::")]
        keys = table[delegate][0] if delegate else keys
        return not keys or kind in keys or any(key.startswith("Composite") for key in keys)

    return implemented
