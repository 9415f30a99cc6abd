"""A method is data: every choice of the paper's Table 1 as a field, checked when it is made."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from inspect import Parameter, signature
from itertools import product
from typing import Any, TypedDict

from s4d_torch._registry import Registry, unknown
from s4d_torch.nn import validate
from s4d_torch.ssm.constraint import CONSTRAINTS
from s4d_torch.ssm.discretization import DISCRETIZATIONS
from s4d_torch.ssm.hippo import HIPPO
from s4d_torch.ssm.initialization import (
    B_STARTS,
    C_STARTS,
    INITIALIZATIONS,
    Spectrum,
    split_mixture,
)
from s4d_torch.ssm.state_space import KERNELS, Kernel

STRUCTURES = ("diagonal", "dplr")
DT_SCALES = ("all", "decay")
EXPONENTIAL = ("zoh", "foh", "dirac")  # rules with A_bar = e^(dt A)


def _either(options: tuple[str, ...]) -> str:
    return " or ".join(repr(option) for option in options)


def _legal_kernels(structure: str) -> str:
    """The kernels a structure can have, each with its discretizations."""
    return " or ".join(
        f"kernel={name!r} with {_either(rule.discretizations or tuple(DISCRETIZATIONS))}"
        for name, rule in KERNELS.items()
        if structure in rule.structures
    )


class Choices(TypedDict, total=False):
    """The fields of :class:`Method` as keyword arguments of a layer."""

    structure: str
    kernel: str
    discretization: str
    constraint: str
    init: str
    B_init: str
    C_init: str
    imag_scale: float
    random_imag: bool
    random_real: bool
    dt_scales: str
    train_A: bool
    train_B: bool
    train_dt: bool
    n_ssm: int | None
    bidirectional: bool
    dt_min: float
    dt_max: float
    softmax_length: int


@dataclass(frozen=True)
class Method:
    """One row of Table 1 and the options around it; the default is the paper's base S4D.

    An illegal combination fails here, with the legal choices in the message.
    """

    structure: str = "diagonal"
    """diagonal, or dplr: diagonal plus a low-rank term, as in S4"""
    kernel: str = "vandermonde"
    """how the kernel is computed: vandermonde, softmax (DSS) or cauchy (S4); with structure dplr
    cauchy's sums are computed by Krylov doubling, several times faster, on every device"""
    discretization: str = "bilinear"
    """bilinear, zoh (zero-order hold), foh (first-order hold) or dirac (samples are events)"""
    constraint: str = "exp"
    """what keeps Re(A) negative: exp, relu, softplus, best, or identity (nothing does)"""
    init: str = "legs"
    """where A starts; names joined by '+' give each group of channels its own start"""
    B_init: str = "auto"
    """where B starts: ones (the paper, for diagonal), hippo (V* B of HiPPO) or hippo-half; gamma
    (the LRU, with discretization dirac) gives states of variance 1"""
    C_init: str = "paper"
    """C normal with variance 1 of each part (paper), with E|C|^2 = 1 (official code), or such that
    states of variance 1 give outputs of variance 1 (unit)"""
    imag_scale: float = 1.0
    """a factor on Im(A) at the start"""
    random_imag: bool = False
    """draw the positions of Im(A) on its law at random"""
    random_real: bool = False
    """draw Re(A) from -U[0, 1] at the start"""
    dt_scales: str = "all"
    """what the step size multiplies: all of A, or its decay alone; then Im(A) is kept as an angle
    per sample, as S4D-DFouT does"""
    train_A: bool = True
    """train A (and P); otherwise they are buffers"""
    train_B: bool = True
    """train B"""
    train_dt: bool = True
    """train the step size"""
    n_ssm: int | None = None
    """independent copies of A and B; 1 ties them across channels, None gives each its own"""
    bidirectional: bool = False
    """a second kernel looks ahead; such a layer cannot be stepped"""
    dt_min: float = 0.001
    """smallest step size at the start"""
    dt_max: float = 0.1
    """largest step size at the start"""
    softmax_length: int = 1024
    """the length a softmax kernel is normalised over: set it to that of your sequences"""

    def __post_init__(self) -> None:
        if not isinstance(self.init, str):
            raise TypeError(f"init must be a name such as 'legs' or 'legs+fout', got {self.init!r}")
        validate.one_of("structure", self.structure, STRUCTURES)
        rule = KERNELS[self.kernel]
        DISCRETIZATIONS[self.discretization]
        CONSTRAINTS[self.constraint]
        validate.one_of("B_init", self.B_init, B_STARTS)
        validate.one_of("C_init", self.C_init, C_STARTS)
        validate.one_of("dt_scales", self.dt_scales, DT_SCALES)
        self._check_kernel(rule)
        self._check_start()
        self._check_steps()
        self._check_numbers()

    @property
    def pairs(self) -> bool:
        """Whether modes stand for conjugate pairs (all but init 'real')."""
        return self.structure == "dplr" or INITIALIZATIONS[split_mixture(self.init)[0]].pairs

    @property
    def has_steps(self) -> bool:
        """Whether a step size is to be chosen: not where it is one constant, as in the LRU."""
        return self.train_dt or self.dt_min < self.dt_max

    def with_steps(self, dt_min: float, dt_max: float) -> Method:
        """This method with step sizes that fit some data, unless it has one of its own."""
        return self.replace(dt_min=dt_min, dt_max=dt_max) if self.has_steps else self

    def replace(self, **choices: Any) -> Method:
        """This method with some choices changed; unknown names get a suggestion."""
        names = [field.name for field in fields(self)]
        for name in choices:
            if name not in names:
                raise TypeError(unknown("option", name, names))
        return replace(self, **choices)

    def _check_kernel(self, rule: Kernel) -> None:
        if self.structure not in rule.structures:
            raise ValueError(
                f"kernel {self.kernel!r} needs structure {_either(rule.structures)}, "
                f"got {self.structure!r}; use {_legal_kernels(self.structure)}"
            )
        if rule.discretizations and self.discretization not in rule.discretizations:
            raise ValueError(
                f"kernel {self.kernel!r} needs {_either(rule.discretizations)}, "
                f"got {self.discretization!r}; use {_legal_kernels(self.structure)}"
            )
        if not rule.real_modes and not self.pairs:
            others = tuple(name for name, other in KERNELS.items() if other.real_modes)
            raise ValueError(
                f"kernel {self.kernel!r} needs complex modes, got init {self.init!r}; "
                f"use another init, or kernel {_either(others)}"
            )

    def _check_start(self) -> None:
        names = split_mixture(self.init)
        if self.structure == "dplr":
            for name in names:
                HIPPO[name]
            if self.random_imag or self.random_real or self.imag_scale != 1:
                raise ValueError(
                    "imag_scale, random_imag and random_real change a diagonal start, "
                    "got structure 'dplr'; use structure='diagonal'"
                )
            if self.B_init not in ("auto", "hippo"):
                raise ValueError(
                    f"structure 'dplr' starts from HiPPO's own B, got B_init {self.B_init!r}; "
                    "use B_init='auto'"
                )
            return
        spectra = {name: INITIALIZATIONS[name] for name in names}
        if len({spectrum.pairs for spectrum in spectra.values()}) > 1:
            raise ValueError(
                f"init {self.init!r} mixes real and complex modes; "
                "use 'real' alone, or leave it out"
            )
        lawless = [name for name, spectrum in spectra.items() if not spectrum.law]
        if self.random_imag and lawless:
            lawful = [name for name, spectrum in INITIALIZATIONS.items() if spectrum.law]
            raise ValueError(
                f"random_imag needs a start with a law for Im(A): {', '.join(lawful)}; "
                f"got init {self.init!r}"
            )
        if not self.pairs and self.imag_scale != 1:
            raise ValueError(
                f"init 'real' has no imaginary part; leave imag_scale at 1, got {self.imag_scale}"
            )
        self._check_decay(spectra)
        if self.B_init.startswith("hippo") and names != ["legs"]:
            raise ValueError(
                f"B_init {self.B_init!r} is the B of LegS and needs init 'legs', "
                f"got {self.init!r}; use B_init='ones'"
            )

    def _check_decay(self, spectra: Mapping[str, Spectrum]) -> None:
        largest = CONSTRAINTS[self.constraint].largest
        fast = [name for name, start in spectra.items() if start.largest_decay > largest]
        if fast and not self.random_real:
            others = tuple(name for name, x in CONSTRAINTS.items() if x.largest == math.inf)
            raise ValueError(
                f"constraint {self.constraint!r} reaches decay rates up to {largest:g}, and init "
                f"{self.init!r} may start from larger ones; use another init, or constraint "
                f"{_either(others)}"
            )

    def _check_steps(self) -> None:
        if self.B_init == "gamma" and self.discretization != "dirac":
            raise ValueError(
                "B_init 'gamma' normalises B_bar and needs discretization 'dirac', where that is "
                f"B itself; got {self.discretization!r}"
            )
        if self.structure == "dplr" and self.dt_scales != "all":
            raise ValueError(
                f"dt_scales {self.dt_scales!r} treats modes one by one, and the low-rank term of "
                "structure 'dplr' mixes them; use structure='diagonal', or dt_scales='all'"
            )
        if self.structure == "diagonal":
            for name in split_mixture(self.init):
                self._check_scale(name, INITIALIZATIONS[name].dt_scales)
        if self.dt_scales == "decay" and self.discretization not in EXPONENTIAL:
            raise ValueError(
                "dt_scales 'decay' keeps the angles of the poles, which discretization "
                f"{self.discretization!r} bends; use {_either(EXPONENTIAL)}"
            )

    def _check_scale(self, name: str, scales: tuple[str, ...]) -> None:
        if self.dt_scales not in scales:
            what = "a frequency in time" if "all" in scales else "an angle per sample"
            others = [
                x for x, start in INITIALIZATIONS.items() if self.dt_scales in start.dt_scales
            ]
            raise ValueError(
                f"Im(A) of init {name!r} is {what} and needs dt_scales {_either(scales)}, got "
                f"{self.dt_scales!r}, which goes with init {_either(tuple(others))}"
            )

    def _check_numbers(self) -> None:
        for field in fields(self):
            if field.type == "bool":
                validate.flag(field.name, getattr(self, field.name))
            elif field.type == "float":
                validate.number(field.name, getattr(self, field.name))
        if not 0 < self.dt_min <= self.dt_max or not math.isfinite(self.dt_max):
            raise ValueError(
                f"need 0 < dt_min <= dt_max, got dt_min={self.dt_min}, dt_max={self.dt_max}"
            )
        if not math.isfinite(self.imag_scale) or self.imag_scale <= 0:
            raise ValueError(f"imag_scale must be a number above 0, got {self.imag_scale}")
        validate.positive_integer("softmax_length", self.softmax_length)
        if self.n_ssm is not None:
            validate.positive_integer("n_ssm", self.n_ssm)


METHODS: Registry[Method] = Registry("method")
TABLE_1 = ("s4d", "s4", "dss")  # the paper's own; what comes after them is later
METHODS.register("s4d", Method())
METHODS.register("s4", Method(structure="dplr", kernel="cauchy"))
METHODS.register(
    "dss", Method(kernel="softmax", discretization="zoh", constraint="identity", train_B=False)
)
METHODS.register("s4d-lin", Method(init="lin"))
METHODS.register("s4d-lin-x3", Method(init="lin", imag_scale=3.0))
METHODS.register("s4d-best", Method(constraint="best"))
METHODS.register("s4d-dfout", Method(discretization="zoh", init="dfout", dt_scales="decay"))
METHODS.register(
    "s4d-dirac", Method(discretization="dirac", init="lin", B_init="gamma", C_init="unit")
)
METHODS.register(
    "lru",
    Method(
        discretization="dirac", init="ring", B_init="gamma", C_init="unit",
        train_dt=False, dt_min=1.0, dt_max=1.0,
    ),
)  # fmt: skip


def check_options(module: Callable[..., Any], choices: Mapping[str, Any]) -> None:
    """Refuse a keyword that is neither an argument of ``module`` nor a choice of a method."""
    arguments = signature(module).parameters.items()
    own = [name for name, argument in arguments if argument.kind is not Parameter.VAR_KEYWORD]
    options = [*own, *(field.name for field in fields(Method))]
    for name in choices:
        if name not in options:
            raise TypeError(unknown("option", name, options))


def legal_methods() -> Iterator[Method]:
    """Every legal structure x kernel x discretization x constraint x init, from the registries."""
    inits = {"diagonal": list(INITIALIZATIONS), "dplr": list(HIPPO)}
    for structure, kernel, discretization, constraint in product(
        STRUCTURES, KERNELS, DISCRETIZATIONS, CONSTRAINTS
    ):
        for init in inits[structure]:
            scales = INITIALIZATIONS[init].dt_scales[0] if structure == "diagonal" else "all"
            try:
                yield Method(structure, kernel, discretization, constraint, init, dt_scales=scales)
            except ValueError:  # this combination is not legal
                continue
