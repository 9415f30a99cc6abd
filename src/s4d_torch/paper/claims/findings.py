"""The findings of the paper's experiments: statements that only trained models can decide.

Each names the table whose results decide it. The rule that does is registered in
:data:`s4d_torch.paper.claims.claim.DECISIONS` under the finding's name.
"""

from __future__ import annotations

from s4d_torch.paper.claims.claim import FINDINGS, Finding

_ALL = (
    # -- parameterisation (section 5.1) --------------------------------------------------------
    Finding(
        "softmax-or-vandermonde",
        "Whether the kernel is computed with a softmax or a Vandermonde product makes little "
        "difference.",
        "does not make much difference",
        "section 5.1 (i), Tables 2 and 7",
        "trainable-b",
    ),
    Finding(
        "training-b-helps",
        "Training B is consistently slightly better than freezing it at 1.",
        "Training B is consistently slightly better",
        "section 5.1 (ii), Tables 2 and 7",
        "trainable-b",
    ),
    Finding(
        "bilinear-or-zoh",
        "The bilinear rule and ZOH make no noticeable difference.",
        "do not make a noticeable difference",
        "section 5.1 (iii), Tables 2 and 8",
        "discretization",
    ),
    Finding(
        "free-real-part",
        "A real part of A without a constraint may be slightly better.",
        "Unrestricting the real part of A may be slightly better",
        "section 5.1 (iv), Tables 2 and 8",
        "discretization",
    ),
    # -- initialisation (section 5.2) ----------------------------------------------------------
    Finding(
        "imaginary-scale",
        "Multiplying all imaginary parts by 0.01 or by 100 substantially reduces performance, on "
        "every dataset.",
        "both changes substantially reduce the performance of S4D in all settings",
        "section 5.2, Table 3a",
        "initialization",
    ),
    Finding(
        "random-imaginary",
        "Random imaginary parts on the same law cause a minor degradation.",
        "this small change causes minor degradation in performance",
        "section 5.2, Table 3a",
        "initialization",
    ),
    Finding(
        "random-real",
        "Random real parts cause a minor but consistent degradation.",
        "this also causes minor but consistent degradation",
        "section 5.2, Table 3a",
        "initialization",
    ),
    Finding(
        "random-both",
        "Random real and imaginary parts together degrade performance further than either alone.",
        "degrades performance even further",
        "section 5.2, Table 3a",
        "initialization",
    ),
    Finding(
        "other-laws",
        "S4D-Inv2 and S4D-Quad, with the same range of frequencies as S4D-Inv, are worse: the "
        "distribution counts, not only the range.",
        "not just the range of the eigenvalues but the actual distribution",
        "section 5.2, Table 3a",
        "initialization",
    ),
    Finding(
        "rand-is-poor",
        "S4D-Rand, a random diagonal A, performs poorly.",
        "validates that it performs poorly",
        "section 5.2, Table 3a",
        "initialization",
    ),
    Finding(
        "real-is-poor",
        "S4D-Real performs poorly, although it has the spectrum of the original S4.",
        "it is not just the diagonalization that matters",
        "section 5.2, Table 3a",
        "initialization",
    ),
    # -- S4 and S4D (section 5.3) --------------------------------------------------------------
    Finding(
        "diagonal-is-competitive",
        "Diagonal state matrices are highly competitive with DPLR ones on all ablation datasets.",
        "highly competitive with full DPLR versions",
        "section 5.3, Table 3b",
        "trainable",
    ),
    Finding(
        "frozen-a-and-b",
        "Freezing A and B is comparable to training them on sCIFAR and BIDMC, and substantially "
        "worse on Speech Commands.",
        "performs comparably ... on sCIFAR and BIDMC, but is substantially worse on SC",
        "section 5.3 (i), Table 3b",
        "trainable",
    ),
    Finding(
        "finite-windows-suffer",
        "The methods with a finite window, S4-LegT and S4-FouT, suffer most from a frozen A.",
        "suffer the most when A is frozen",
        "section 5.3 (i), Table 3b",
        "trainable",
    ),
    Finding(
        "dplr-learns-faster",
        "DPLR is often slightly better than diagonal, after the first epoch and at the end.",
        "often slightly better ... throughout the entire training curve",
        "section 5.3 (ii), Table 3b",
        "trainable",
    ),
    Finding(
        "large-diagonal-is-competitive",
        "With larger models too, S4D is competitive with S4 on the ablation datasets.",
        "Our best S4D methods are competitive with S4 on almost all settings",
        "section 5.3, Table 4",
        "large",
    ),
    Finding(
        "speech-ar-is-competitive",
        "Causal S4D models are competitive with causal S4 on Speech Commands.",
        "we show both an autoregressive model ... and an unconstrained bidirectional model",
        "section 5.3, Table 4",
        "speech-ar",
    ),
    Finding(
        "zero-shot-resampling",
        "At half the sampling rate, without training, state space models lose few points on Speech "
        "Commands (under 5 in the paper), and convolutional networks most of theirs (70 to 88).",
        "0-shot testing at 8000Hz: S4D-Inv 91.80, ConvNet 07.26",
        "appendix B, Table 11",
        "speech-rates",
    ),
    Finding(
        "speech-beats-convnets",
        "With 306K parameters S4D matches a ConvNet of 26.2M on Speech Commands, and is far ahead "
        "of the smaller ones.",
        "S4D-Lin 96.25, ConvNet 95.51, ResNet-18 77.86",
        "appendix B, Table 11",
        "speech-rates",
    ),
    # -- Long Range Arena (section 5.3) --------------------------------------------------------
    Finding(
        "arena-competitive",
        "S4D is highly competitive with S4 on all tasks of the Long Range Arena but Path-X.",
        "highly competitive on all datasets except Path-X",
        "section 5.3, Table 5",
        "lra",
    ),
    Finding(
        "arena-outperforms",
        "On several tasks of the Long Range Arena some S4D outperforms both S4-LegS and S4-FouT.",
        "outperform the S4 variants on several of them",
        "section 5.3, Table 5",
        "lra",
    ),
    Finding(
        "arena-beats-transformer",
        "S4D-Inv averages more than 30 points above the Transformer.",
        "more than 30 points better than the original Transformer",
        "section 5.3, Table 5",
        "lra",
    ),
    Finding(
        "path-x-needs-the-start",
        "On Path-X S4D-Inv and S4D-LegS are above chance, and S4D-Lin is not.",
        "only S4D-Inv ... achieves above random chance (Table 5: S4D-LegS too)",
        "section 5.3, Table 5",
        "lra",
    ),
    # -- Path-X, one choice at a time (section 5.3) --------------------------------------------
    Finding(
        "path-x-free-real-part",
        "On Path-X too, a real part without a constraint has little benefit.",
        "letting Re(A) be unconstrained has little benefit",
        "section 5.3 (i), Table 6",
        "pathx-ablation",
    ),
    Finding(
        "path-x-bilinear-or-zoh",
        "On Path-X too, the bilinear rule and ZOH make no difference.",
        "the bilinear vs. ZOH discretizations make no difference",
        "section 5.3 (ii), Table 6",
        "pathx-ablation",
    ),
    Finding(
        "path-x-training-b-helps",
        "On Path-X too, training B helps slightly.",
        "training B helps slightly",
        "section 5.3 (iii), Table 6",
        "pathx-ablation",
    ),
    Finding(
        "path-x-softmax-hurts",
        "On Path-X the softmax of DSS hurts, and DSS as a whole is the worst of the seven.",
        "the softmax normalization of DSS actually hurts performance",
        "section 5.3, Table 6",
        "pathx-ablation",
    ),
    Finding(
        "choices-matter-little",
        "For a fixed start, the choices of parameterisation make little difference overall.",
        "different aspects of parameterizing SSMs make little difference overall",
        "section 5.1; the columns of Table 6 on sCIFAR",
        "choices",
    ),
)

for _finding in _ALL:
    FINDINGS.register(_finding.name, _finding)
