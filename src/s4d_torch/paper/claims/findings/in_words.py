"""What the paper finds in words: sentences of the appendix without a table."""

from s4d_torch.paper.claims import rules
from s4d_torch.paper.claims.claim import Finding
from s4d_torch.paper.claims.findings.ablations import NO_CONTEXT

FINDINGS = (
    Finding(
        "image-dropout",
        "For the images dropout makes a difference.",
        "Dropout does seem to make a difference",
        "appendix B, sCIFAR / LRA Image",
        table="image-choices",
        rows=(("as it is", "no dropout"),),
        rule=rules.Better(),
        needs_full="dropout is for training that is long enough to overfit",
    ),
    Finding(
        "image-norm-and-width",
        "For the images the choice of the norm and the width make no significant difference.",
        "the choice of normalization and increased H do not make a significant difference",
        "appendix B, sCIFAR / LRA Image",
        table="image-choices",
        rows=(("as it is", "batch norm"), ("as it is", "half as wide")),
        rule=rules.Alike(),
        needs_full="the width that is halved here is scarce already",
    ),
    Finding(
        "listops-norm",
        "On ListOps post-norm and pre-norm are close, less than a point apart (post-norm ahead, "
        "says the paper).",
        "results are again close (less than 1% difference)",
        "appendix B, ListOps",
        table="listops-choices",
        rows=(("post-norm", "pre-norm"),),
        rule=rules.Alike(margin=1.0),
    ),
    Finding(
        "listops-small-models",
        "On ListOps much smaller models are very close.",
        "results are very close with much smaller models",
        "appendix B, ListOps",
        table="listops-choices",
        rows=(("smaller", "post-norm"),),
        rule=rules.Competitive(),
        needs_full="what is made smaller here is small already",
    ),
    Finding(
        "tying-is-harmless",
        "One A and B for all channels does not affect performance much.",
        "it generally does not affect performance much",
        "appendix B, training protocol of the ablations",
        table="tying",
        rows=(("tied", "untied"),),
        rule=rules.Alike(),
    ),
    Finding(
        "speech-dt-hypothesis",
        "A frozen A and B do better on Speech Commands with longer memories, as the paper's "
        "explanation of their weakness would have it.",
        "We hypothesize that this results from dt being poorly initialized for SC",
        "section 5.3 (i)",
        table="speech-dt",
        rows=(("frozen, longer memory", "frozen"),),
        rule=rules.Better(),
        needs_full=NO_CONTEXT,
    ),
    Finding(
        "better-than-the-original",
        "S4 as it is trained here is better on images and text than as it was first published.",
        "better than the original S4 model",
        "section 5.3, of the ablation datasets; here by what Table 5 prints",
        table="original-s4",
        rows=(("S4-LegS", "S4 (original)"),),
        rule=rules.Better(),
    ),
)
