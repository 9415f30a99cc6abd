// Systems of S4, A = diag(Lambda) - P P*, under the bilinear rule. The other half of each
// conjugate pair is implied, so P* s of a real state is 2 Re(sum conj(P_n) s_n).

// system: A (Lambda), B, C, P (an array of vectors, one for each rank), dt.
function lowRankKernel(system, length) {
  const { A, B, C, P, dt } = system;
  const modes = sizeOf(A);
  const shrink = vectorOf(modes, (n) => div([1, 0], sub([1, 0], scale(dt / 2, at(A, n)))));
  const products = (v, w) => {
    let sum = 0; // Re(v* w)
    for (let n = 0; n < modes; n++) sum += v.re[n] * w.re[n] + v.im[n] * w.im[n];
    return sum;
  };
  const times = (v, w) => vectorOf(modes, (n) => mul(at(v, n), at(w, n)));
  const shrunk = P.map((p) => times(shrink, p)); // (1 - dt/2 Lambda)^-1 P
  const core = P.map((p, i) => shrunk.map((q, j) => (i === j ? 1 : 0) + dt * products(p, q)));
  const weights = inverse(core);

  // (I - dt/2 A)^-1 v, by the Woodbury identity
  const solve = (v) => {
    const result = times(shrink, v);
    const seen = P.map((p) => products(p, result));
    for (let i = 0; i < P.length; i++) {
      let amount = 0;
      for (let j = 0; j < P.length; j++) amount += dt * weights[i][j] * seen[j];
      for (let n = 0; n < modes; n++) {
        result.re[n] -= amount * shrunk[i].re[n];
        result.im[n] -= amount * shrunk[i].im[n];
      }
    }
    return result;
  };

  const K = new Float64Array(length);
  let state = solve(vectorOf(modes, (n) => scale(dt, at(B, n))));
  for (let l = 0; l < length; l++) {
    for (let n = 0; n < modes; n++) {
      K[l] += 2 * (C.re[n] * state.re[n] - C.im[n] * state.im[n]);
    }
    const solved = solve(state); // A_bar = 2 (I - dt/2 A)^-1 - I
    for (let n = 0; n < modes; n++) {
      state.re[n] = 2 * solved.re[n] - state.re[n];
      state.im[n] = 2 * solved.im[n] - state.im[n];
    }
  }
  return K;
}

// G(s) = C (s - A)^-1 B; a row of the readout is C, a column is B or P, over both halves of pairs.
function lowRankTransfer(system, s) {
  const { A, B, C, P } = system;
  const form = (row, column) => {
    let total = [0, 0];
    for (let n = 0; n < sizeOf(A); n++) {
      const weight = mul(row(n), at(column, n));
      total = add(total, div(weight, sub(s, at(A, n))));
      total = add(total, div(conj(weight), sub(s, conj(at(A, n)))));
    }
    return total;
  };
  const readout = (n) => at(C, n);
  const rows = P.map((p) => (n) => conj(at(p, n)));
  const core = rows.map((row, i) => P.map((p, j) => add([i === j ? 1 : 0, 0], form(row, p))));
  const solved = solveSmall(core, rows.map((row) => form(row, B)));
  return P.reduce((total, p, i) => sub(total, mul(form(readout, p), solved[i])), form(readout, B));
}

// H(z) of the bilinear rule is G at s = 2/dt (z - 1) / (z + 1), times 2 z / (z + 1).
function lowRankResponse(system, frequencies) {
  return vectorOf(frequencies.length, (i) => {
    const z = cexp([0, 2 * Math.PI * frequencies[i]]);
    const above = add(z, [1, 0]);
    const s = scale(2 / system.dt, div(sub(z, [1, 0]), above));
    return mul(div(scale(2, z), above), lowRankTransfer(system, s));
  });
}

const lowRankContinuousResponse = (system, frequencies) =>
  vectorOf(frequencies.length, (i) =>
    lowRankTransfer(system, [0, (2 * Math.PI * frequencies[i]) / system.dt]),
  );

// Ranks are 1 or 2, seldom more; elimination without pivots is safe, as the cores are I plus a
// form with a positive real part.
function solveSmall(matrix, right) {
  const rows = matrix.map((row, i) => [...row, right[i]]);
  for (let i = 0; i < rows.length; i++) {
    const pivot = rows[i][i];
    rows[i] = rows[i].map((x) => div(x, pivot));
    for (let j = 0; j < rows.length; j++) {
      if (j === i) continue;
      const factor = rows[j][i];
      rows[j] = rows[j].map((x, k) => sub(x, mul(factor, rows[i][k])));
    }
  }
  return rows.map((row) => row[row.length - 1]);
}

function inverse(matrix) {
  const complex = matrix.map((row) => row.map((x) => [x, 0]));
  const columns = matrix.map((_, j) => {
    const unit = matrix.map((_, i) => [i === j ? 1 : 0, 0]);
    return solveSmall(complex, unit).map(([re]) => re);
  });
  return matrix.map((_, i) => columns.map((column) => column[i]));
}
