"""What the large models find: speech, the Long Range Arena, and Path-X choice by choice (5.3)."""

from functools import partial

from s4d_torch.paper.claims import rules
from s4d_torch.paper.claims.claim import Finding
from s4d_torch.paper.claims.findings.ablations import COUNTERPARTS
from s4d_torch.paper.recipes.benchmark_tables import ARENA, CHOICES
from s4d_torch.paper.recipes.recipe import VARIANTS

DIAGONAL, DPLR = ("S4D-LegS", "S4D-Inv", "S4D-Lin"), ("S4-LegS", "S4-FouT")
EASIER = "models are small here, and curves that are drawn are far easier than those of Path-X"
on_arena = partial(Finding, where="section 5.3, Table 5", table="lra")
on_path_x = partial(Finding, table="pathx-ablation")

FINDINGS = (
    Finding(
        "large-diagonal-is-competitive",
        "With larger models too, the best S4D is competitive with the best S4 on almost all of the "
        "ablation datasets.",
        "Our best S4D methods are competitive with S4 on almost all settings",
        "section 1, Table 4",
        table="large",
        rows=(DIAGONAL, DPLR),
        rule=rules.BestCompetitive(share=rules.ALMOST_ALL),
        needs_full="no model is large here",
    ),
    Finding(
        "speech-ar-is-competitive",
        "The best causal S4D is competitive with the best causal S4 on Speech Commands.",
        "Our best S4D methods are competitive with S4 on almost all settings",
        "section 1, Table 4, column AR",
        table="speech-ar",
        rows=(DIAGONAL, DPLR),
        rule=rules.BestCompetitive(),
        needs_full="no model is large here",
    ),
    Finding(
        "zero-shot-resampling",
        "At half the sampling rate, without training, state space models lose few points on Speech "
        "Commands (under 5 in the paper), and convolutional networks most of theirs (of two, 69 "
        "and 88).",
        "0-shot testing at 8000Hz: S4D-Inv 91.80, ConvNet 07.26",
        "appendix B, Table 11",
        table="speech-rates",
        rows=(tuple(VARIANTS), ("ConvNet", "ResNet-18")),
        rule=rules.LosesLittle(little=10.0, most=50.0),
    ),
    Finding(
        "speech-beats-convnets",
        "With 306K parameters S4D matches a ConvNet of 26.2M on Speech Commands, and is far ahead "
        "of a ResNet-18 of 216K.",
        "S4D-Lin 96.25, ConvNet 95.51, ResNet-18 77.86",
        "appendix B, Table 11",
        table="speech-rates",
        rows=(("S4D-Lin", "ConvNet"), ("S4D-Lin", "ResNet-18")),
        rule=rules.AllOf(
            rules.Competitive(against="ConvNet", datasets=("16000 Hz",)),
            rules.FarBetter(against="ResNet-18", datasets=("16000 Hz",)),
        ),
        needs_full="networks have other sizes here",
    ),
    on_arena(
        "arena-competitive",
        "S4D is highly competitive with S4 on all tasks of the Long Range Arena but Path-X.",
        "highly competitive on all datasets except Path-X",
        rows=COUNTERPARTS,
        rule=rules.Competitive(datasets=tuple(ARENA)[:-1], everywhere=True),  # all but Path-X
    ),
    on_arena(
        "arena-outperforms",
        "On several tasks of the Long Range Arena but Path-X some S4D outperforms both S4-LegS and "
        "S4-FouT.",
        "outperform the S4 variants on several of them",
        rows=(DIAGONAL, DPLR),
        rule=rules.BestWins(several=2, datasets=tuple(ARENA)[:-1]),
    ),
    on_arena(
        "arena-best-competitive",
        "On all tasks of the Long Range Arena the best S4D is competitive with the best S4.",
        "the best S4D variant is competitive with S4 on all tasks",
        where="section 5, Table 5",
        rows=(DIAGONAL, DPLR),
        rule=rules.BestCompetitive(everywhere=True),
    ),
    on_arena(
        "arena-beats-transformer",
        "S4D-Inv averages more than 30 points above the Transformer.",
        "more than 30 points better than the original Transformer",
        rows=(("S4D-Inv", "Transformer"),),
        rule=rules.BetterOnAverage(by=30.0),
        needs_full="levels are lower here",
    ),
    on_arena(
        "path-x-needs-the-start",
        "On Path-X S4D-Inv and S4D-LegS are above chance, and S4D-Lin is not.",
        "only S4D-Inv ... achieves above random chance (Table 5: S4D-LegS too)",
        rows=(("S4D-Inv", "S4D-LegS"), ("S4D-Lin",)),
        rule=rules.AboveChance("Path-X", margin=5.0),
        needs_full=EASIER,
    ),
    on_path_x(
        "path-x-free-real-part",
        "On Path-X too, a real part without a constraint has little benefit.",
        "letting Re(A) be unconstrained has little benefit",
        "section 5.3 (i), Table 6",
        rows=(("S4D", "identity Re(A)"),),
        rule=rules.Competitive(),
        needs_full=EASIER,
    ),
    on_path_x(
        "path-x-bilinear-or-zoh",
        "On Path-X too, the bilinear rule and ZOH make no difference.",
        "the bilinear vs. ZOH discretizations make no difference",
        "section 5.3 (ii), Table 6",
        rows=(("ZOH", "S4D"),),
        rule=rules.Alike(),
        needs_full=EASIER,
    ),
    on_path_x(
        "path-x-training-b-helps",
        "On Path-X too, training B helps (slightly, says the paper).",
        "training B helps slightly",
        "section 5.3 (iii), Table 6",
        rows=(("S4D", "frozen B"),),
        rule=rules.Better(),
        needs_full=EASIER,
    ),
    on_path_x(
        "path-x-softmax-hurts",
        "On Path-X, unlike on easier datasets, the softmax of DSS hurts.",
        "the softmax normalization of DSS actually hurts performance",
        "section 5.3, Table 6",
        rows=(("ZOH", "ZOH and softmax"),),
        rule=rules.Better(),
        needs_full=EASIER,
    ),
    Finding(
        "choices-matter-little",
        "For a fixed start, the choices of parameterisation make little difference overall.",
        "different aspects of parameterizing SSMs make little difference overall",
        "section 5.1; here S4D-LegS with the columns of Table 6, on sCIFAR",
        table="choices",
        rows=[(row, "S4D") for row in CHOICES if row not in ("S4D", "DSS")],
        rule=rules.Alike(),
    ),
)
