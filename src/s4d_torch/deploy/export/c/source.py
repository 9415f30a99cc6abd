"""``s4d.c``: constants, functions, and a self-test with a test vector; or under another name."""

from collections.abc import Iterator
from dataclasses import asdict

import torch

from s4d_torch.data.dataset import Signature
from s4d_torch.deploy.export.c.functions import functions
from s4d_torch.deploy.export.c.tables import Tables
from s4d_torch.deploy.export.c.templates import IS_FINITE
from s4d_torch.deploy.export.c.text import C_TYPES, array, comment, initializer, renamed, string
from s4d_torch.deploy.export.card import normalized
from s4d_torch.deploy.export.job import Job
from s4d_torch.deploy.export.pushes import Vector

SIZES = {
    "encoder_weight": "[S4D_INPUTS][S4D_WIDTH]",
    "encoder_rows": "[S4D_TOKENS][S4D_WIDTH]",
    "pair_weight": "[4 * S4D_WIDTH][S4D_WIDTH]",
    "decoder_weight": "[S4D_WIDTH][S4D_OUTPUTS]",
    "decoder_bias": "[S4D_OUTPUTS]",
    "mixing_weight": "[S4D_WIDTH][S4D_MIXED]",
    "mixing_bias": "[S4D_MIXED]",
    "mixing_scale": "[S4D_MIXED]",
    "a_re": "[S4D_MODES][S4D_WIDTH]",
    "a_im": "[S4D_MODES][S4D_WIDTH]",
    "c_re": "[S4D_MODES][S4D_WIDTH]",
    "c_im": "[S4D_MODES][S4D_WIDTH]",
    "left_re": "[S4D_RANK][S4D_MODES][S4D_WIDTH]",
    "left_im": "[S4D_RANK][S4D_MODES][S4D_WIDTH]",
    "right_re": "[S4D_RANK][S4D_MODES][S4D_WIDTH]",
    "right_im": "[S4D_RANK][S4D_MODES][S4D_WIDTH]",
}  # all others are [S4D_WIDTH]

SELF_TEST = """\
#ifdef S4D_SELF_TEST

#include <stdio.h>

#define TEST_ANSWERS {answers}
#define TEST_BLOCK {block} /* samples before each of them */

{vector}
/* The model's own answers, beside those of this machine. */
int main(void)
{{
    static s4d_state state;
    const s4d_input *u = test_u;
    float y[S4D_OUTPUTS], largest = 0.0f, difference = 0.0f;
    int i, o, failed, broken = 0;
    s4d_init(&state);
    for (i = 0; i < TEST_ANSWERS; i++, u += TEST_BLOCK * S4D_SAMPLE) {{
        failed = s4d_push(&state, u, TEST_BLOCK - 1, NULL);
        failed |= s4d_push(&state, u + (TEST_BLOCK - 1) * S4D_SAMPLE, 1, y);
        if (failed) {{
            printf("s4d.c: the test samples were refused\\n");
            return 1;
        }}
        for (o = 0; o < S4D_OUTPUTS; o++) {{
            largest = fmaxf(largest, fabsf(test_y[i][o]));
            difference = fmaxf(difference, fabsf(y[o] - test_y[i][o]));
            broken |= !is_finite(y[o]);
        }}
    }}
    failed = broken || difference > {tolerance}f * largest;
    printf("s4d.c: self-test %s, largest difference %.1e of %.3g\\n", failed ? "FAILED" : "passed",
           (double)difference, (double)largest);
    return failed;
}}

#endif
"""
TEST_TOLERANCE = "1e-4"  # of the largest output


def source(job: Job, tables: Tables, vector: Vector, name: str) -> str:
    """The whole file; ``name`` is what its functions, types and macros begin with."""
    constants = [
        comment("How to build and use it: see s4d.h."),
        '#include "s4d.h"\n\n#include <math.h>\n#include <string.h>\n',
        comment("---- constants " + "-" * 70),
        *(array(name, x, SIZES.get(name, "[S4D_WIDTH]")) for name, x in tables.model.items()),
        "\n".join(_layers(tables)),
    ]
    code = [
        comment("---- functions " + "-" * 70),
        *functions(job.plan),
        _self_test(vector, IS_FINITE + "\n" if job.plan.tokens else ""),
    ]
    before, after = (renamed("\n".join(parts), name) for parts in (constants, code))
    return "\n".join([before, *_data(job.signature, name), after])


def _layers(tables: Tables) -> Iterator[str]:
    """A structure for the constants of a layer, and all of them."""
    yield "struct layer {"
    for name, x in tables.layers[0].items():
        real = x.dtype == torch.float64 or name.split("_")[0] in ("a", "c", "d", "left", "right")
        kind = "s4d_real" if real else C_TYPES[x.dtype]
        yield f"    {kind} {name}{SIZES.get(name, '[S4D_WIDTH]')};"
    yield "};\n"
    yield "static const struct layer layers[S4D_LAYERS] = {"
    for number, layer in enumerate(tables.layers):
        yield f"    {{ /* layer {number} */"
        for name, x in layer.items():
            yield f"        .{name} = {initializer(x, ' ' * 8)},"
        yield "    },"
    yield "};\n"


def _data(known: Signature | None, prefix: str) -> list[str]:
    """What is known of the data: definitions, among them the user's own words."""
    if known is None:
        return []
    parts = []
    if normalized(asdict(known)):
        for name in ("input_shift", "input_scale"):
            given = torch.tensor(getattr(known, name), dtype=torch.float32)
            values = given.expand(known.features)  # one number stands for all
            declared = renamed(f"const float s4d_{name}[S4D_INPUTS]", prefix)
            parts.append(f"{declared} = {initializer(values)};\n")
    if known.classes:
        names = ",\n".join(f"    {string(name)}" for name in known.classes)
        declared = renamed("const char *const s4d_classes[S4D_OUTPUTS]", prefix)
        parts.append(f"{declared} = {{\n{names}\n}};\n")
    return parts


def _self_test(vector: Vector, needed: str) -> str:
    """``needed`` is a function that all else does without."""
    answers, block = vector.y.shape[0], vector.u.shape[1]
    u = vector.u.flatten()
    samples = array("test_u", u, "[TEST_ANSWERS * TEST_BLOCK * S4D_SAMPLE]", "s4d_input")
    wanted = array("test_y", vector.y, "[TEST_ANSWERS][S4D_OUTPUTS]")
    return SELF_TEST.format(
        answers=answers,
        block=block,
        vector=f"{needed}{samples}\n{wanted}",
        tolerance=TEST_TOLERANCE,
    )
