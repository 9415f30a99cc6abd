"""``s4d.h``: what a program that uses the model includes; another name takes the place of s4d."""

from dataclasses import asdict

from s4d_torch._version import __version__
from s4d_torch.data.dataset import Signature
from s4d_torch.deploy.export.c.tables import Tables
from s4d_torch.deploy.export.c.text import C_TYPES, comment, number, renamed
from s4d_torch.deploy.export.card import normalized
from s4d_torch.deploy.export.job import Job
from s4d_torch.nn.plan import ModelPlan

CALLS = """\
/* Once, before the first sample. */
void s4d_init(s4d_state *state);

/* A new sequence begins. */
void s4d_reset(s4d_state *state);

/*
 * Read so many samples, one or a block: u holds S4D_SAMPLE numbers for each. y gets S4D_OUTPUTS for
 * each, the answer to all of the sequence up to there; or it is NULL, and no answer is computed.
 * Returns 0, or -1 if {wrong}: then nothing was read.
 */
int s4d_push(s4d_state *state, const s4d_input *u, size_t samples, float *y);
"""


CHANNELS = "{channels}"  # the user's own words, put in once all names are changed


def header(job: Job, tables: Tables, name: str) -> str:
    """The whole file; ``name`` is what its functions, types and macros begin with."""
    plan, real = job.plan, C_TYPES[job.state]
    own = "" if job.signature is None else ", ".join(job.signature.channels)
    wrong = "a token is not one of them" if plan.tokens else "a number is NaN or infinite"
    parts = [
        "#ifndef S4D_H\n#define S4D_H\n\n#include <stddef.h>\n#include <stdint.h>\n\n"
        '#ifdef __cplusplus\nextern "C" {\n#endif\n',
        "".join(f"#define {name} {value}{why}\n" for name, value, why in _sizes(plan)),
        f"typedef {'int32_t' if plan.tokens else 'float'} s4d_input;\n"
        f"typedef {real} s4d_real; /* of the state and of all that multiplies it */\n",
        _state(plan),
        CALLS.format(wrong=wrong),
        *_data(job.signature),
        "#ifdef __cplusplus\n}\n#endif\n\n#endif\n",
    ]
    about = renamed(_about(job, tables), name).replace(CHANNELS, own)
    return comment(about) + "\n" + renamed("\n".join(parts), name)


def state_bytes(job: Job) -> int:
    """``sizeof(s4d_state)`` without what a compiler may add between its parts."""
    plan, size = job.plan, job.state.itemsize
    numbers = len(plan.blocks) * plan.d_model * plan.d_state
    pooled = 8 * (plan.d_model + 1) if plan.pooling == "mean" else 0
    return plan.towers * (size * numbers + pooled)


def stack_bytes(job: Job) -> int:
    """All arrays of a push, and room for registers and addresses.

    A compiler that puts functions into one another may lay their arrays side by side.
    """
    plan, system = job.plan, job.plan.blocks[0].past
    rank = system.right.shape[1] if system.kind == "low rank" else 0
    floats = plan.towers + max(1, plan.mixing.width) + 1 + 2  # x, v, inner; two of a norm
    floats += 5 if plan.towers == 2 else 0  # of the decoder of a pair
    return plan.d_model * (4 * floats + job.state.itemsize * (1 + rank)) + 768


def _about(job: Job, tables: Tables) -> str:
    plan, config = job.plan, job.model.config
    method = config["method"]
    choices = ", ".join(method[name] for name in ("structure", "kernel", "discretization", "init"))
    layers = "1 layer" if len(plan.blocks) == 1 else f"{len(plan.blocks)} layers"
    rate = "" if job.rate == 1 else f" The sampling rate is fixed at rate={job.rate:g}."
    return f"""\
A state space model that answers sample by sample: {layers}, d_model {plan.d_model}, d_state \
{plan.d_state} ({choices}). Written by s4d-torch {__version__}; C99 and the C library alone, no \
allocation, nothing shared between states.{rate}

Build:
    cc -std=c99 -O3 -c s4d.c    and link with -lm; with -march=native, or your processor's, faster
Test:
    cc -std=c99 -O3 -DS4D_SELF_TEST s4d.c -o s4d_test -lm && ./s4d_test
Use:
    static s4d_state state;
    {"int32_t" if plan.tokens else "float"} u[S4D_SAMPLE];
    float y[S4D_OUTPUTS];
    s4d_init(&state);
    while (next_sample(u))
        if (s4d_push(&state, u, 1, y) == 0)
            use(y);

Memory: {tables.bytes} bytes of constants, {state_bytes(job)} for each state, about \
{stack_bytes(job)} of stack.

{_meaning(job)}

For an audio thread: after long silence a state may hold subnormal numbers, which some processors \
compute slowly; set them to flush to zero.
"""


def _meaning(job: Job) -> str:
    """What goes in and comes out."""
    plan, known, lines = job.plan, job.signature, []
    pair = " of each of the two sequences, first and second" if plan.towers == 2 else ""
    if plan.tokens:
        lines.append(f"A sample is a token from 0 to {plan.d_input - 1}{pair}.")
    else:
        names = "" if known is None or not known.channels else f": {CHANNELS}"
        count = "one number" if plan.d_input == 1 else f"{plan.d_input} numbers"
        lines.append(f"A sample is {count}{pair}{names}.")
    if known is not None and normalized(asdict(known)):
        lines.append("The model reads (x - s4d_input_shift[i]) * s4d_input_scale[i].")
    if known is not None and known.sample_rate is not None:
        lines.append(f"There are {known.sample_rate / job.rate:g} samples per second.")
    over = {
        "mean": "for the whole of the sequence up to there, a mean over time",
        "last": "for the whole of the sequence up to there",
        "none": "for this sample, knowing those before",
    }[plan.pooling]
    lines.append(f"An answer is {plan.d_output} numbers, {over}.")
    if known is not None and known.kind == "regression":
        lines.append("A prediction is y[i] * S4D_TARGET_SCALE + S4D_TARGET_SHIFT.")
    elif known is not None:
        lines.append("They are logits: the largest is the likeliest.")
    if known is not None and known.kind == "generation" and plan.d_input > plan.d_output:
        lines.append(f"Token {plan.d_input - 1} stands for the beginning and is read first.")
    return " ".join(lines)


def _sizes(plan: ModelPlan) -> list[tuple[str, int, str]]:
    system = plan.blocks[0].past
    modes = plan.d_state if system.kind == "real" else plan.d_state // 2
    read = 1 if plan.tokens else plan.d_input
    first = (
        ("S4D_TOKENS", plan.d_input, " /* that there are */")
        if plan.tokens
        else ("S4D_INPUTS", plan.d_input, "")
    )
    sizes = [
        first,
        ("S4D_SAMPLE", read * plan.towers, " /* numbers of one sample */"),
        ("S4D_OUTPUTS", plan.d_output, ""),
        ("S4D_WIDTH", plan.d_model, " /* channels */"),
        ("S4D_MIXED", plan.d_model * max(1, plan.mixing.width), ""),
        ("S4D_LAYERS", len(plan.blocks), ""),
        ("S4D_MODES", modes, " /* of each channel */"),
    ]
    if system.kind == "low rank":
        sizes.append(("S4D_RANK", system.right.shape[1], ""))
    return sizes


def _state(plan: ModelPlan) -> str:
    parts = ("re", "im") if plan.blocks[0].past.kind != "real" else ("re",)
    fields = [f"s4d_real {part}[S4D_LAYERS][S4D_MODES][S4D_WIDTH];" for part in parts]
    if plan.pooling == "mean":
        fields += ["double total[S4D_WIDTH];", "double samples;"]
    inside = "".join(f"    {field}\n" for field in fields)
    if plan.towers == 1:
        return (
            "/* All that is carried from one sample to the next. */\n"
            f"typedef struct {{\n{inside}}} s4d_state;\n"
        )
    return (
        f"typedef struct {{\n{inside}}} s4d_sequence;\n\n"
        "/* All that is carried from one sample to the next, of two sequences. */\n"
        "typedef struct {\n    s4d_sequence sequence[2];\n} s4d_state;\n"
    )


def _data(known: Signature | None) -> list[str]:
    """What is known of the data: declarations."""
    if known is None:
        return []
    lines = []
    if normalized(asdict(known)):
        lines.append("extern const float s4d_input_shift[S4D_INPUTS], s4d_input_scale[S4D_INPUTS];")
    if known.kind == "regression":
        lines.append(f"#define S4D_TARGET_SHIFT ({number(known.target_shift)})")
        lines.append(f"#define S4D_TARGET_SCALE ({number(known.target_scale)})")
    if known.classes:
        lines.append("extern const char *const s4d_classes[S4D_OUTPUTS];")
    return ["\n".join(lines) + "\n"] if lines else []
