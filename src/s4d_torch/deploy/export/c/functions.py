"""The functions of the C source: which of the templates a plan needs, and what is filled in."""

import re
from collections.abc import Iterator

from s4d_torch.deploy.export.c.templates import (
    ACTIVATION,
    AFFINE,
    CALLS,
    DECAY,
    DECODE,
    DECODE_PAIR,
    HELPERS,
    IS_FINITE,
    LAYER,
    MEAN,
    MIXING_INT8,
    NORMS,
    READ,
    SYSTEMS,
)
from s4d_torch.deploy.export.c.text import number
from s4d_torch.nn.norm import NormKind
from s4d_torch.nn.plan import ModelPlan


def functions(plan: ModelPlan) -> Iterator[str]:
    """Each function after those that it calls."""
    norm = _norm_kind(plan)
    if norm != NormKind.NONE:
        yield NORMS[norm].substitute(eps=number(_eps(plan)))
    yield from _helpers(plan)
    yield ACTIVATION.substitute(expression=plan.activation.c)
    yield AFFINE
    if _int8(plan):
        yield MIXING_INT8
    yield SYSTEMS[plan.blocks[0].past.kind]
    yield _layer(plan, norm)
    yield _read(plan, norm)
    yield DECODE if plan.towers == 1 else DECODE_PAIR
    if not plan.tokens:
        yield IS_FINITE
    yield _calls(plan)


def _helpers(plan: ModelPlan) -> list[str]:
    """What the expressions of the plan call; an unused function would be a warning."""
    expressions = f"{plan.activation.c} {plan.mixing.c}"
    found = [code for name, code in HELPERS.items() if re.search(rf"\b{name}\(", expressions)]
    return [DECAY, *found] if found else []


def _norm_kind(plan: ModelPlan) -> NormKind:
    norm = plan.blocks[0].norm
    assert norm is not None
    return norm.kind


def _eps(plan: ModelPlan) -> float:
    norm = plan.blocks[0].norm
    assert norm is not None
    return norm.eps


def _int8(plan: ModelPlan) -> bool:
    linear = plan.blocks[0].linear
    return linear is not None and linear.scale is not None


def _layer(plan: ModelPlan, norm: NormKind) -> str:
    complex_modes = plan.blocks[0].past.kind != "real"
    normalize = "    normalize({}, p->norm_scale, p->norm_shift, {});\n"
    before = norm != NormKind.NONE and plan.prenorm
    after = norm != NormKind.NONE and not plan.prenorm
    where = "norms first" if before else "then norms" if after else "no norm"
    if plan.blocks[0].linear is None:
        mixed = "memcpy(v, inner, sizeof inner)"
    else:
        sizes = "inner, S4D_WIDTH, S4D_MIXED, v"
        kind, scale = ("affine_int8", "p->mixing_scale, ") if _int8(plan) else ("affine", "")
        mixed = f"{kind}(&p->mixing_weight[0][0], {scale}p->mixing_bias, {sizes})"
    parts = ("re", "im") if complex_modes else ("re",)
    return LAYER.substitute(
        where=where,
        state=", ".join(f"s4d_real (*{part})[S4D_WIDTH]" for part in parts),
        before=normalize.format("x", "v") if before else "",
        passed=", ".join(parts),
        read="v" if before else "x",
        mixed=mixed,
        expression=plan.mixing.c,
        after=normalize.format("x", "x") if after else "",
    )


def _read(plan: ModelPlan, norm: NormKind) -> str:
    kind = "s4d_sequence" if plan.towers == 2 else "s4d_state"
    if plan.tokens:
        encode = "    memcpy(x, encoder_rows[token], sizeof encoder_rows[token]);\n"
    else:
        encode = "    affine(&encoder_weight[0][0], encoder_bias, u, S4D_INPUTS, S4D_WIDTH, x);\n"
    parts = ("re", "im") if plan.blocks[0].past.kind != "real" else ("re",)
    last, mean = plan.prenorm and norm != NormKind.NONE, plan.pooling == "mean"
    return READ.substitute(
        kind=kind,
        input="s4d_input token" if plan.tokens else "const float *u",
        variables="    double part;\n    int l, h;\n" if mean else "    int l;\n",
        encode=encode,
        passed=", ".join(f"s->{part}[l]" for part in parts),
        last_norm="    normalize(x, last_norm_scale, last_norm_shift, x);\n" if last else "",
        pool=MEAN if mean else "",
    )


def _calls(plan: ModelPlan) -> str:
    if plan.towers == 1:
        read = f"        read_sample(state, {'u[0]' if plan.tokens else 'u'}, x);\n"
    else:
        second = "u[1]" if plan.tokens else "u + S4D_INPUTS"
        first = "u[0]" if plan.tokens else "u"
        read = (
            f"        read_sample(&state->sequence[0], {first}, x);\n"
            f"        read_sample(&state->sequence[1], {second}, x + S4D_WIDTH);\n"
        )
    width = "S4D_WIDTH" if plan.towers == 1 else "2 * S4D_WIDTH"
    wrong = "u[t] < 0 || u[t] >= S4D_TOKENS" if plan.tokens else "!is_finite(u[t])"
    return CALLS.substitute(width=width, read=read, wrong=wrong)
