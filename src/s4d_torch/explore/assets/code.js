// Python code that makes what is on the screen, with the public names of s4d_torch.

function pythonCode(state, run) {
  const moved = [...state.moved.entries()].sort(([a], [b]) => a - b);
  const setsC = state.mode === "start" && state.choice.C === "ones";
  const lines = ["import torch"];
  if (state.mode === "start") lines.push("from s4d_torch import SSM");
  else lines.push("from s4d_torch import SSM", "from s4d_torch.training import Run");
  if (moved.length) lines.push("from s4d_torch.ssm.constraint import CONSTRAINTS");
  lines.push("", ...(state.mode === "start" ? codeOfStart(state) : codeOfRun(state, run)));
  const { pairs } = state.mode === "start" ? STARTS[state.choice.init] : run.layers[state.layer];
  if (setsC) {
    lines.push("", "with torch.no_grad():  # C = 1");
    if (pairs) lines.push("    ssm.raw_C.zero_()", "    ssm.raw_C[..., 0] = 1");
    else lines.push("    ssm.raw_C.fill_(1)");
  }
  if (moved.length) lines.push("", ...codeOfMoves(moved, state, run, pairs));
  const bidirectional = state.mode === "run" && run.layers[state.layer].C.re.length === 2;
  const place = bidirectional ? `${state.side}, ${state.channel}` : String(state.channel);
  lines.push(
    "",
    `K = ssm.kernel(${state.length})[${state.mode === "start" ? "0" : place}]` +
      `  # (${state.length},)`,
  );
  return `${lines.join("\n")}\n`;
}

function codeOfStart({ choice, dt, rule, constraint }) {
  const start = STARTS[choice.init];
  const options = [
    "    1,  # one channel",
    `    ${choice.N},`,
    `    init="${choice.init}",`,
    `    discretization="${rule}",`,
    `    constraint="${constraint}",`,
  ];
  if (choice.init === "legs" && choice.B !== "ones") options.push(`    B_init="${choice.B}",`);
  if (choice.imagScale !== 1 && start.pairs) options.push(`    imag_scale=${choice.imagScale},`);
  if (choice.randomImag && start.law) options.push("    random_imag=True,");
  if (choice.randomReal) options.push("    random_real=True,");
  if (start.decayOnly) options.push('    dt_scales="decay",');
  options.push(
    `    dt_min=${dt},`,
    `    dt_max=${dt},`,
    `    generator=torch.Generator().manual_seed(${choice.seed}),`,
    "    dtype=torch.float64,",
  );
  return ["ssm = SSM(", ...options, ")"];
}

function codeOfRun(state, run) {
  const layer = run.layers[state.layer];
  const lines = [
    `run = Run.load(${JSON.stringify(run.folder ?? run.name ?? "RUN")})  # its folder`,
    "layers = [module for module in run.model.modules() if isinstance(module, SSM)]",
    `ssm = layers[${state.layer}].double()`,
  ];
  const changes = [];
  if (state.rule !== layer.discretization) changes.push(`discretization="${state.rule}"`);
  if (state.constraint !== layer.constraint) {
    lines.push(`# on the page, Re(A) is seen through the constraint "${state.constraint}"`);
  }
  if (changes.length) lines.push(`ssm.method = ssm.method.replace(${changes.join(", ")})`);
  if (state.dt !== layer.dt[state.channel]) {
    lines.push(
      "with torch.no_grad():",
      `    ssm.log_dt[${state.channel}] = torch.tensor(${state.dt}, dtype=torch.float64).log()`,
    );
  }
  return lines;
}

function codeOfMoves(moved, state, run, pairs) {
  const set =
    state.mode === "start" ? 0 : channelOf(run, state.layer, state.channel, state.side).set;
  const constraint = state.mode === "start" ? state.constraint : run.layers[state.layer].constraint;
  const lines = [
    "moved = {  # pole: its eigenvalue",
    ...moved.map(([n, [re, im]]) => `    ${n}: complex(${re}, ${im}),`),
    "}",
    `inverse = CONSTRAINTS["${constraint}"].inverse`,
    "with torch.no_grad():",
    "    for n, A in moved.items():",
    `        ssm.raw_decay[${set}, n] = inverse(torch.tensor(-A.real, dtype=torch.float64))`,
  ];
  const angles =
    state.mode === "start"
      ? STARTS[state.choice.init].decayOnly
      : run.layers[state.layer].dt_scales === "decay";
  if (pairs) lines.push(`        ssm.frequency[${set}, n] = A.imag${angles ? ` * ${state.dt}` : ""}`);
  return lines;
}
