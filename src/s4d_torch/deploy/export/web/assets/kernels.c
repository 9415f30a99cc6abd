/*
 * The inner loops of loops.js for WebAssembly, several channels at a time: what they compute is what
 * the functions of the same names there do, which run where there are no such instructions.
 * States are double, all else float; arrays have the channels as their last axis. No stack, no
 * library. kernels.js holds what is compiled from this file, by
 *     python benchmarks/web_kernels.py
 */

typedef float floats __attribute__((vector_size(16), aligned(4)));
typedef double doubles __attribute__((vector_size(16), aligned(8)));

#define EXPORT(name) __attribute__((export_name(#name)))
#define LOAD(type, pointer) (*(const type *)(pointer))
#define STORE(type, pointer, value) (*(type *)(pointer) = (value))

/* y = b + W x; W is stored input by input. Four inputs at a time, as y waits in memory. */
EXPORT(affine)
void affine(const float *w, const float *b, const float *x, int inputs, int outputs, float *y)
{
    int i, o;
    for (o = 0; o < outputs; o++)
        y[o] = b[o];
    for (i = 0; i + 4 <= inputs; i += 4, w += 4 * outputs) {
        const float *w1 = w + outputs, *w2 = w1 + outputs, *w3 = w2 + outputs;
        const floats x0 = {x[i], x[i], x[i], x[i]};
        const floats x1 = {x[i + 1], x[i + 1], x[i + 1], x[i + 1]};
        const floats x2 = {x[i + 2], x[i + 2], x[i + 2], x[i + 2]};
        const floats x3 = {x[i + 3], x[i + 3], x[i + 3], x[i + 3]};
        for (o = 0; o + 4 <= outputs; o += 4)
            STORE(floats, y + o,
                  LOAD(floats, y + o) + ((LOAD(floats, w + o) * x0 + LOAD(floats, w1 + o) * x1)
                                         + (LOAD(floats, w2 + o) * x2 + LOAD(floats, w3 + o) * x3)));
        for (; o < outputs; o++)
            y[o] += (w[o] * x[i] + w1[o] * x[i + 1]) + (w2[o] * x[i + 2] + w3[o] * x[i + 3]);
    }
    for (; i < inputs; i++, w += outputs)
        for (o = 0; o < outputs; o++)
            y[o] += w[o] * x[i];
}

/* y = Re(c s) + d u, then s <- a s + u, s = re + i im (modes, width). */
EXPORT(complexSystem)
void complex_system(const double *a_re, const double *a_im, const double *c_re, const double *c_im,
                    const double *d, double *re, double *im, const float *u, float *y, int width,
                    int modes)
{
    int h = 0, m, at;
    for (; h + 2 <= width; h += 2) {
        const doubles v = {(double)u[h], (double)u[h + 1]};
        doubles sum = LOAD(doubles, d + h) * v;
        for (m = 0, at = h; m < modes; m++, at += width) {
            const doubles r = LOAD(doubles, re + at), i = LOAD(doubles, im + at);
            const doubles ar = LOAD(doubles, a_re + at), ai = LOAD(doubles, a_im + at);
            sum += LOAD(doubles, c_re + at) * r + LOAD(doubles, c_im + at) * i;
            STORE(doubles, re + at, ar * r - ai * i + v);
            STORE(doubles, im + at, ar * i + ai * r);
        }
        y[h] = (float)sum[0];
        y[h + 1] = (float)sum[1];
    }
    for (; h < width; h++) {
        double sum = d[h] * (double)u[h];
        for (m = 0, at = h; m < modes; m++, at += width) {
            const double r = re[at], i = im[at];
            sum += c_re[at] * r + c_im[at] * i;
            re[at] = a_re[at] * r - a_im[at] * i + (double)u[h];
            im[at] = a_re[at] * i + a_im[at] * r;
        }
        y[h] = (float)sum;
    }
}

/* seen_k = Re(right_k s), of the state before the sample: right and left are (rank, modes, width). */
EXPORT(lowRankSeen)
void low_rank_seen(const double *right_re, const double *right_im, const double *re,
                   const double *im, double *seen, int width, int modes, int rank)
{
    int k, m, h, at = 0;
    for (h = 0; h < rank * width; h++)
        seen[h] = 0;
    for (k = 0; k < rank; k++)
        for (m = 0; m < modes; m++)
            for (h = 0; h < width; h++, at++)
                seen[k * width + h] += right_re[at] * re[m * width + h]
                                       + right_im[at] * im[m * width + h];
}

/* s <- s - sum_k left_k seen_k */
EXPORT(lowRankLess)
void low_rank_less(const double *left_re, const double *left_im, double *re, double *im,
                   const double *seen, int width, int modes, int rank)
{
    int k, m, h, at = 0;
    for (k = 0; k < rank; k++)
        for (m = 0; m < modes; m++)
            for (h = 0; h < width; h++, at++) {
                re[m * width + h] -= left_re[at] * seen[k * width + h];
                im[m * width + h] -= left_im[at] * seen[k * width + h];
            }
}
