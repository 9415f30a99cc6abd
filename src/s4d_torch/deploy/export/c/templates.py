"""The C functions themselves, to be filled in where there is a ``$``.

Sizes are those of the header. Loops over channels are innermost and independent of each other, so
that a compiler may run several channels at a time in plain C99, without leave to reorder sums.
``inline`` is where a compiler has to know sizes for that.
"""

from string import Template

from s4d_torch.nn.norm import NormKind

DECAY = """\
/* The smaller of x and a limit, x >= 0, by the bits of both, which have the same order. */
static inline float at_most(float x, float limit)
{
    uint32_t bits, most;
    memcpy(&bits, &x, sizeof bits);
    memcpy(&most, &limit, sizeof most);
    bits = bits < most ? bits : most;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/*
 * e^-x for x >= 0, to about the last bit. Without a branch, so that compilers compute several at a
 * time, as they do not with the library's: -x = n log 2 + r, and adding 1.5 2^23 leaves n in the
 * last bits.
 */
static inline float decay(float x)
{
    const float c = at_most(x, 87.0f), shifted = 12582912.0f - c * 1.44269504f;
    float power, n, r;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    n = (float)((int32_t)bits - 0x4b400000);
    r = (-c - n * 0.693359375f) + n * 2.12194440e-4f;
    bits = (bits + 127u) << 23; /* 2^n */
    memcpy(&power, &bits, sizeof power);
    return power * (1.0f + r * (1.0f + r * (0.5f + r * (1.66666667e-1f + r * (4.16666667e-2f
           + r * (8.33333333e-3f + r * (1.38888889e-3f + r * 1.98412698e-4f)))))));
}
"""

SIGMOID = """\
/* 1 / (1 + e^-x) */
static inline float sigmoid(float x)
{
    const float e = decay(fabsf(x));
    return 0.5f + copysignf(0.5f * (1.0f - e) / (1.0f + e), x);
}
"""

NORMAL = """\
/* The normal distribution function, to 1e-7: e^-(a polynomial) below zero, symmetric above. */
static inline float normal(float x)
{
    const float a = at_most(fabsf(x), 6.0f);
    const float tail = decay(0.693147178f + a * (0.797884736f + a * (0.318307627f
        + a * (0.0363463605f + a * (-0.00480651656f + a * (-8.30202813e-6f + a * (1.95950087e-4f
        + a * (-5.16062230e-5f + a * (6.56591673e-6f + a * -3.51310081e-7f)))))))));
    return 0.5f + copysignf(0.5f - tail, x);
}
"""

HELPERS = {"sigmoid": SIGMOID, "normal": NORMAL}  # that the C of an activation or mixing may call

LAYER_NORM = Template("""\
/* Sums over the channels have four parts: one chain of additions would wait for each of them. */
static float sum(const float *x)
{
    const int whole = S4D_WIDTH - S4D_WIDTH % 4;
    float a = 0.0f, b = 0.0f, c = 0.0f, d = 0.0f;
    int h;
    for (h = 0; h < whole; h += 4) {
        a += x[h];
        b += x[h + 1];
        c += x[h + 2];
        d += x[h + 3];
    }
    for (h = whole; h < S4D_WIDTH; h++)
        a += x[h];
    return (a + b) + (c + d);
}

/* y = (x - mean) / deviation * scale + shift */
static void normalize(const float *x, const float *scale, const float *shift, float *y)
{
    const float mean = sum(x) / (float)S4D_WIDTH;
    float centred[S4D_WIDTH], squares[S4D_WIDTH], factor;
    int h;
    for (h = 0; h < S4D_WIDTH; h++) {
        centred[h] = x[h] - mean;
        squares[h] = centred[h] * centred[h];
    }
    factor = 1.0f / sqrtf(sum(squares) / (float)S4D_WIDTH + $eps);
    for (h = 0; h < S4D_WIDTH; h++)
        y[h] = centred[h] * factor * scale[h] + shift[h];
}
""")

AFFINE_NORM = Template("""\
/* y = x * scale + shift: a batch norm with the statistics of its training. */
static void normalize(const float *x, const float *scale, const float *shift, float *y)
{
    int h;
    for (h = 0; h < S4D_WIDTH; h++)
        y[h] = x[h] * scale[h] + shift[h];
}
""")

NORMS = {NormKind.LAYER: LAYER_NORM, NormKind.AFFINE: AFFINE_NORM, NormKind.NONE: Template("")}

ACTIVATION = Template("""\
static inline float activate(float x)
{
    return $expression;
}
""")

AFFINE = """\
/* y = b + W x, four inputs at a time; W is stored input by input, its outputs being neighbours. */
static inline void affine(const float *w, const float *b, const float *x, int inputs,
                          int outputs, float *restrict y)
{
    const int whole = inputs - inputs % 4;
    int i, o;
    for (o = 0; o < outputs; o++)
        y[o] = b[o];
    for (i = 0; i < whole; i += 4, w += 4 * outputs)
        for (o = 0; o < outputs; o++)
            y[o] += (w[o] * x[i] + w[o + outputs] * x[i + 1])
                    + (w[o + 2 * outputs] * x[i + 2] + w[o + 3 * outputs] * x[i + 3]);
    for (i = whole; i < inputs; i++, w += outputs)
        for (o = 0; o < outputs; o++)
            y[o] += w[o] * x[i];
}
"""

MIXING_INT8 = """\
/* y = b + scale * (W x): whole numbers from -127 to 127, with one scale for each output. */
static inline void affine_int8(const int8_t *w, const float *scale, const float *b,
                               const float *x, int inputs, int outputs, float *restrict y)
{
    int i, o;
    for (o = 0; o < outputs; o++)
        y[o] = 0.0f;
    for (i = 0; i < inputs; i++, w += outputs)
        for (o = 0; o < outputs; o++)
            y[o] += (float)w[o] * x[i];
    for (o = 0; o < outputs; o++)
        y[o] = b[o] + scale[o] * y[o];
}
"""

COMPLEX_SYSTEM = """\
/* y = Re(c s) + d u, then s <- a s + u, for all complex modes s of all channels. */
static void state_space(const struct layer *p, s4d_real (*restrict re)[S4D_WIDTH],
                        s4d_real (*restrict im)[S4D_WIDTH], const float *restrict u,
                        float *restrict y)
{
    s4d_real sum[S4D_WIDTH];
    int m, h;
    for (h = 0; h < S4D_WIDTH; h++)
        sum[h] = p->d[h] * (s4d_real)u[h];
    for (m = 0; m < S4D_MODES; m++)
        for (h = 0; h < S4D_WIDTH; h++) {
            const s4d_real r = re[m][h], i = im[m][h];
            sum[h] += p->c_re[m][h] * r + p->c_im[m][h] * i;
            re[m][h] = p->a_re[m][h] * r - p->a_im[m][h] * i + (s4d_real)u[h];
            im[m][h] = p->a_re[m][h] * i + p->a_im[m][h] * r;
        }
    for (h = 0; h < S4D_WIDTH; h++)
        y[h] = (float)sum[h];
}
"""

REAL_SYSTEM = """\
/* y = c s + d u, then s <- a s + u, for all real modes s of all channels. */
static void state_space(const struct layer *p, s4d_real (*restrict re)[S4D_WIDTH],
                        const float *restrict u, float *restrict y)
{
    s4d_real sum[S4D_WIDTH];
    int m, h;
    for (h = 0; h < S4D_WIDTH; h++)
        sum[h] = p->d[h] * (s4d_real)u[h];
    for (m = 0; m < S4D_MODES; m++)
        for (h = 0; h < S4D_WIDTH; h++) {
            sum[h] += p->c_re[m][h] * re[m][h];
            re[m][h] = p->a_re[m][h] * re[m][h] + (s4d_real)u[h];
        }
    for (h = 0; h < S4D_WIDTH; h++)
        y[h] = (float)sum[h];
}
"""

LOW_RANK_SYSTEM = """\
/* y = Re(c s) + d u, then s <- a s - sum_k left_k Re(right_k s) + u, for all channels. */
static void state_space(const struct layer *p, s4d_real (*restrict re)[S4D_WIDTH],
                        s4d_real (*restrict im)[S4D_WIDTH], const float *restrict u,
                        float *restrict y)
{
    s4d_real sum[S4D_WIDTH], seen[S4D_RANK][S4D_WIDTH];
    int k, m, h;
    for (h = 0; h < S4D_WIDTH; h++)
        sum[h] = p->d[h] * (s4d_real)u[h];
    for (k = 0; k < S4D_RANK; k++) {
        for (h = 0; h < S4D_WIDTH; h++)
            seen[k][h] = 0;
        for (m = 0; m < S4D_MODES; m++)
            for (h = 0; h < S4D_WIDTH; h++)
                seen[k][h] += p->right_re[k][m][h] * re[m][h] + p->right_im[k][m][h] * im[m][h];
    }
    for (m = 0; m < S4D_MODES; m++) {
        for (h = 0; h < S4D_WIDTH; h++) {
            const s4d_real r = re[m][h], i = im[m][h];
            sum[h] += p->c_re[m][h] * r + p->c_im[m][h] * i;
            re[m][h] = p->a_re[m][h] * r - p->a_im[m][h] * i + (s4d_real)u[h];
            im[m][h] = p->a_re[m][h] * i + p->a_im[m][h] * r;
        }
        for (k = 0; k < S4D_RANK; k++)
            for (h = 0; h < S4D_WIDTH; h++) {
                re[m][h] -= p->left_re[k][m][h] * seen[k][h];
                im[m][h] -= p->left_im[k][m][h] * seen[k][h];
            }
    }
    for (h = 0; h < S4D_WIDTH; h++)
        y[h] = (float)sum[h];
}
"""

SYSTEMS = {"pairs": COMPLEX_SYSTEM, "real": REAL_SYSTEM, "low rank": LOW_RANK_SYSTEM}

LAYER = Template("""\
/* One residual block: x <- x + mix(activate(system(x))), $where. */
static void apply_layer(const struct layer *p, $state,
                        float *x)
{
    float v[S4D_MIXED], inner[S4D_WIDTH];
    int h;
$before\
    state_space(p, $passed, $read, inner);
    for (h = 0; h < S4D_WIDTH; h++)
        inner[h] = activate(inner[h]);
    $mixed;
    for (h = 0; h < S4D_WIDTH; h++)
        x[h] += $expression;
$after\
}
""")

READ = Template("""\
/* One sample of one sequence: x is what the decoder reads of it. */
static void read_sample($kind *s, $input, float *x)
{
$variables$encode\
    for (l = 0; l < S4D_LAYERS; l++)
        apply_layer(&layers[l], $passed, x);
$last_norm$pool\
}
""")

MEAN = """\
    s->samples += 1.0;
    part = 1.0 / s->samples;
    for (h = 0; h < S4D_WIDTH; h++) { /* in double: a sum of millions keeps its digits */
        s->total[h] += (double)x[h];
        x[h] = (float)(s->total[h] * part);
    }
"""

DECODE = """\
static void decode(const float *x, float *y)
{
    affine(&decoder_weight[0][0], decoder_bias, x, S4D_WIDTH, S4D_OUTPUTS, y);
}
"""

DECODE_PAIR = """\
/* Of two sequences a and b the decoder reads a, b, a - b and a b. */
static void decode(const float *x, float *y)
{
    const float *a = x, *b = x + S4D_WIDTH;
    float both[4 * S4D_WIDTH], inner[S4D_WIDTH];
    int h;
    for (h = 0; h < S4D_WIDTH; h++) {
        both[h] = a[h];
        both[h + S4D_WIDTH] = b[h];
        both[h + 2 * S4D_WIDTH] = a[h] - b[h];
        both[h + 3 * S4D_WIDTH] = a[h] * b[h];
    }
    affine(&pair_weight[0][0], pair_bias, both, 4 * S4D_WIDTH, S4D_WIDTH, inner);
    for (h = 0; h < S4D_WIDTH; h++)
        inner[h] = activate(inner[h]);
    affine(&decoder_weight[0][0], decoder_bias, inner, S4D_WIDTH, S4D_OUTPUTS, y);
}
"""

IS_FINITE = """\
/* By its bits: -ffast-math would leave the library's test out. */
static int is_finite(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bits & 0x7f800000u) != 0x7f800000u;
}
"""

CALLS = Template("""\
void s4d_init(s4d_state *state)
{
    s4d_reset(state);
}

void s4d_reset(s4d_state *state)
{
    memset(state, 0, sizeof *state); /* bytes of zeros are the number 0 in IEEE 754 */
}

int s4d_push(s4d_state *state, const s4d_input *u, size_t samples, float *y)
{
    float x[$width];
    size_t t;
    for (t = 0; t < samples * S4D_SAMPLE; t++)
        if ($wrong)
            return -1;
    for (t = 0; t < samples; t++, u += S4D_SAMPLE) {
$read\
        if (y != NULL)
            decode(x, y + t * S4D_OUTPUTS);
    }
    return 0;
}
""")
