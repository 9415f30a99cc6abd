"""What the ablations find: parameterisation, initialisation, and A and B frozen (5.1 to 5.3)."""

from functools import partial

from s4d_torch.paper.claims import rules
from s4d_torch.paper.claims.claim import Finding
from s4d_torch.paper.recipes.ablation_tables import ALL_VARIANTS

LAWS = ("S4D-Inv", "S4D-Lin")
FEW_EPOCHS = "after few epochs whatever learns faster is ahead"
NO_CONTEXT = "a mean over a clip needs less context than its last position"
BOTH_KINDS = [model for model in ALL_VARIANTS if model != "DSS"]  # "all S4D and S4 variants"
COUNTERPARTS = (("S4D-LegS", "S4-LegS"), ("S4D-Inv", "S4-LegS"), ("S4D-Lin", "S4-FouT"))
on_starts = partial(Finding, where="section 5.2, Table 3a", table="initialization")
on_trainable = partial(Finding, table="trainable")

FINDINGS = (
    Finding(
        "softmax-or-vandermonde",
        "Whether the kernel is computed with a softmax or a Vandermonde product makes little "
        "difference.",
        "does not make much difference",
        "section 5.1 (i), Tables 2 and 7",
        table="trainable-b",
        rows=[(f"{how} B, softmax", f"{how} B, Vandermonde") for how in ("frozen", "trained")],
        rule=rules.Alike(),
    ),
    Finding(
        "training-b-helps",
        "Training B is consistently better than freezing it at 1 (slightly, says the paper).",
        "Training B is consistently slightly better",
        "section 5.1 (ii), Tables 2 and 7",
        table="trainable-b",
        rows=[(f"trained B, {how}", f"frozen B, {how}") for how in ("softmax", "Vandermonde")],
        rule=rules.Better(everywhere=True),
    ),
    Finding(
        "bilinear-or-zoh",
        "The bilinear rule and ZOH make no noticeable difference.",
        "do not make a noticeable difference",
        "section 5.1 (iii), Tables 2 and 8",
        table="discretization",
        rows=[(f"zoh, {part}", f"bilinear, {part}") for part in ("exp", "none", "ReLU")],
        rule=rules.Alike(),
    ),
    Finding(
        "free-real-part",
        "A real part of A without a constraint may be slightly better.",
        "Unrestricting the real part of A may be slightly better",
        "section 5.1 (iv), Tables 2 and 8",
        table="discretization",
        rows=(("bilinear, none", "bilinear, exp"), ("zoh, none", "zoh, exp")),
        rule=rules.Better(share=rules.MAYBE),
    ),
    on_starts(
        "imaginary-scale",
        "Multiplying all imaginary parts by 0.01 or by 100 substantially reduces performance, on "
        "every dataset.",
        "both changes substantially reduce the performance of S4D in all settings",
        rows=[(law, f"{law}, Im x {factor}") for law in LAWS for factor in ("0.01", "100")],
        rule=rules.FarBetter(everywhere=True),
    ),
    on_starts(
        "random-imaginary",
        "Random imaginary parts on the same law degrade performance (by little, says the paper).",
        "this small change causes minor degradation in performance",
        rows=[(law, f"{law}, random Im") for law in LAWS],
        rule=rules.Better(),
    ),
    on_starts(
        "random-real",
        "Random real parts degrade performance everywhere (by little, says the paper).",
        "this also causes minor but consistent degradation",
        rows=[(law, f"{law}, random Re") for law in LAWS],
        rule=rules.Better(everywhere=True),
    ),
    on_starts(
        "random-both",
        "Random real and imaginary parts together degrade performance further than either alone.",
        "degrades performance even further",
        rows=[
            (f"{law}, random {part}", f"{law}, random Im and Re")
            for law in LAWS
            for part in ("Im", "Re")
        ],
        rule=rules.Better(),
    ),
    on_starts(
        "other-laws",
        "S4D-Inv2 and S4D-Quad, with the same range of frequencies as S4D-Inv, are worse: the "
        "distribution counts, not only the range.",
        "not just the range of the eigenvalues but the actual distribution",
        rows=(("S4D-Inv", "S4D-Inv2"), ("S4D-Inv", "S4D-Quad")),
        rule=rules.Better(),
    ),
    on_starts(
        "linear-law",
        "The linear law of S4D-Lin, very different from that of S4D-Inv, performs well too.",
        "A very different linear law based on Fourier frequencies also performs well",
        rows=(("S4D-Lin", "S4D-Inv"),),
        rule=rules.Competitive(),
    ),
    on_starts(
        "rand-is-poor",
        "S4D-Rand, a random diagonal A, performs poorly.",
        "validates that it performs poorly",
        rows=(("S4D-Inv", "S4D-Rand"), ("S4D-Lin", "S4D-Rand")),
        rule=rules.FarBetter(),
    ),
    on_starts(
        "real-is-poor",
        "S4D-Real, with the exact spectrum of S4-LegS, is far worse: it is not just the "
        "diagonalisation that matters.",
        "two different initializations with the same spectrum ... can have very different "
        "performance",
        rows=(("S4-LegS", "S4D-Real"),),
        rule=rules.FarBetter(),
    ),
    on_trainable(
        "diagonal-is-competitive",
        "Diagonal state matrices are highly competitive with DPLR ones on all ablation datasets.",
        "highly competitive with full DPLR versions",
        "section 5.3, Table 3b",
        rows=[(f"{ours}, trained", f"{theirs}, trained") for ours, theirs in COUNTERPARTS],
        rule=rules.Competitive(everywhere=True),
        needs_full=FEW_EPOCHS,
    ),
    Finding(
        "diagonal-catches-up",
        "Diagonal state matrices are competitive with DPLR ones that are trained as long, four "
        "times as long as in the other tables.",
        "highly competitive with full DPLR versions",
        "section 5.3, Table 3b",
        table="longer",
        rows=COUNTERPARTS,
        rule=rules.Competitive(),
        needs_full=FEW_EPOCHS,
    ),
    on_trainable(
        "frozen-a-and-b",
        "Freezing A and B is comparable to training them on sCIFAR and BIDMC.",
        "Freezing the matrices performs comparably to training them on sCIFAR and BIDMC",
        "section 5.3 (i), Table 3b",
        rows=[(f"{model}, trained", f"{model}, frozen") for model in BOTH_KINDS],
        rule=rules.Alike(datasets=("sCIFAR", "BIDMC"), everywhere=True),
    ),
    on_trainable(
        "frozen-on-speech",
        "Freezing A and B is substantially worse than training them on Speech Commands.",
        "but is substantially worse on SC",
        "section 5.3 (i), Table 3b",
        rows=[(f"{model}, trained", f"{model}, frozen") for model in BOTH_KINDS],
        rule=rules.FarBetter(datasets=("SC",)),
        needs_full=NO_CONTEXT,
    ),
    on_trainable(
        "finite-windows-suffer",
        "The methods with a finite window, S4-LegT and S4-FouT, suffer most from a frozen A.",
        "suffer the most when A is frozen",
        "section 5.3 (i), Table 3b",
        rows=[(f"{model}, trained", f"{model}, frozen") for model in BOTH_KINDS],
        rule=rules.LosesMost(("S4-LegT", "S4-FouT"), datasets=("SC",)),
        needs_full=NO_CONTEXT,
    ),
    on_trainable(
        "dplr-learns-faster",
        "DPLR is often better than diagonal, after the first epoch and at the end (slightly, says "
        "the paper).",
        "often slightly better ... throughout the entire training curve",
        "section 5.3 (ii), Table 3b",
        rows=[
            (f"{dplr}, trained", f"{diagonal}, trained")
            for dplr, diagonal in (("S4-LegS", "S4D-LegS"), ("S4-FouT", "S4D-Lin"))
        ],
        rule=rules.Better(first_epoch=True, share=rules.OFTEN),
    ),
)
