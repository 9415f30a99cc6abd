"""The claims of the paper: which hold, by which numbers, and that the checks can say no."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from s4d_torch.cli.paper import print_claims
from s4d_torch.paper import bases
from s4d_torch.paper.claims import CLAIMS, FINDINGS, Finding, Verdict, judge
from s4d_torch.paper.claims.claim import count_verdicts, sentences
from s4d_torch.paper.claims.comparison import Evidence
from s4d_torch.paper.claims.theory import (
    basis_functions,
    eigenvalue_laws,
    errata,
    kernel_costs,
    kernel_identities,
)
from s4d_torch.paper.recipes import RECIPES
from s4d_torch.paper.scores import Scores, score_of
from s4d_torch.ssm.hippo import Modes

ERRATA = {name for name in CLAIMS if name.startswith("erratum-")}

# The numbers that a verdict gives, as a pattern of its effect or detail.
NUMBERS = {
    "legs-without-low-rank": r"0\.032, 0\.006, 0\.00066; pointwise 0\.25, 0\.24, 0\.25",
    "reconstruction": r"0\.0039, 0\.039, 0\.36, 0\.97",
    "bilinear-smooths": r"bilinear 0\.11, 0\.026, .*1\.64 for N = 256.*seen at 1\.6",
    "largest-frequency": r"-0\.5234508, -0\.5235895, -0\.5235982",
    "inverse-law": r"between 0\.64 and 1\.00",
    "same-maximum": r"0\.984 and 0\.969",
    "legs-has-no-stable-diagonal": r"10\^5, 10\^11, 10\^23, 10\^48",
    "perturbation-breaks-legs": r"7%, 43%, 84%",
    "matrix-memory": r"1\.0 MB with the matrix, 0\.11 MB summed by modes, 0\.13 MB ours",
    "variance-preserving": r"LegS 1\.00, 1\.00, 0\.98.*18\.91, 16\.58, 5\.77",
    "low-rank-parameters": r"306,851 and 306,083, 768 .*305,699 and 305,315",
    "ablation-size": r"106,403 .* 135,946",
    "arena-averages": r"85\.50, 31\.8 points",
    "erratum-listing-kernel": r"26, 102, 1000",
    "erratum-listing-parameters": r"shapes \(32,\) \(64,\)",
    "erratum-listing-forward": r"complex128",
    "erratum-normal-form": r"126 .* 0 instead of 1303.* -2006 to \+62\.8",
    "erratum-quad": r"\+1263",
    "erratum-random-imaginary": r"51% .*132 times",
    "erratum-conjecture-constant": r"-0\.5235982",
    "erratum-caption": r"ZOH, 0\.014; \(d\), bilinear, 0\.00011",
    "erratum-background-basis": r"2\.7 times at t = 1, 55 times",
    "erratum-endpoint": r"1\.732 = L_1\(1\), but L_1\(0\) = -1\.732.*0\.333",
    "erratum-integral-bounds": r"-22025 from s = -10 on, and grows; from 0 to 10 it is 1\.0000",
    "erratum-repeated-number": r"85\.37 \(0\.43\) twice.*11 different",
    "erratum-one-model-two-results": r"85\.37.*85\.02 .*85\.20",
    "erratum-largest-lin": r"2\.06 times",
    "erratum-path-x": r"S4D-LegS 91\.95, S4D-Inv 92\.80",
}


# What the paper says without a limit, and is true with one.
IN_PART = {
    "inverse-law",
    "inv-approximates-legs",
    "variance-preserving",
    "low-rank-parameters",
    "ablation-size",
    "legs-without-low-rank",
    "perturbation-breaks-legs",
    "complexity-of-dplr",
    "arena-averages",
}


@pytest.mark.parametrize("name", CLAIMS)
def test_what_holds_holds_and_errata_fail(name: str) -> None:
    claim = CLAIMS[name]
    verdict = claim.check()
    said = f"{verdict.effect} {verdict.detail}"
    true = "holds in part" if name in IN_PART else "holds"
    assert verdict.holds == ("fails" if name in ERRATA else true), said
    assert verdict.detail.startswith("Only ") == (name in IN_PART)
    assert bool(claim.right) == (name in ERRATA)
    assert claim.statement.endswith(".")
    assert claim.where
    assert re.search(r"\d|equal", verdict.effect), "a verdict without numbers"
    if name in NUMBERS:
        assert re.search(NUMBERS[name], said, re.DOTALL), said


def test_every_erratum_and_every_numbered_statement_is_checked() -> None:
    assert set(NUMBERS) >= ERRATA
    places = " ".join(claim.where for claim in CLAIMS.values())
    for numbered in ("Proposition 1", "Proposition 2", "Theorem 3", "Proposition 4"):
        assert numbered in places
    for numbered in ("Conjecture 5, first", "Conjecture 5, second", "Theorem 6", "Lemma A.1"):
        assert numbered in places


# -- the checks can say no -------------------------------------------------------------------------


def half_the_modes(d_state: int) -> Modes:
    return bases.legs_modes(d_state // 2)


def no_basis(count: int, t: torch.Tensor) -> torch.Tensor:
    return torch.zeros(count, len(t), dtype=torch.float64)


def wrong_basis(*arguments: object, window: float = 0.0) -> torch.Tensor:
    return torch.zeros(1, len(basis_functions.TIMES), dtype=torch.float64)


@pytest.mark.parametrize(
    ("name", "module", "attribute", "replacement"),
    [
        ("legs-without-low-rank", bases, "legs_without_low_rank", wrong_basis),
        ("legs-closed-form", basis_functions, "legs_basis", no_basis),
        ("reconstruction", bases, "leak", lambda N, w: w / N),
        ("largest-frequency", eigenvalue_laws, "legs_modes", half_the_modes),
        ("inverse-law", eigenvalue_laws, "legs_modes", half_the_modes),
        ("two-lines", kernel_identities, "CODE", "K = exp(dt * A).real"),
        ("masked-s4-is-s4d", kernel_identities, "bilinear", kernel_identities.zoh),
        ("softmax-is-row-normalized", kernel_identities, "zoh", kernel_identities.bilinear),
        ("complexity-of-dplr", kernel_costs, "largest_off", lambda found, wanted: 1.0),
    ],
)
def test_a_check_fails_on_wrong_numbers(
    name: str,
    module: object,
    attribute: str,
    replacement: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, attribute, replacement)
    try:
        verdict = CLAIMS[name].check()
    except (AssertionError, RuntimeError):  # wrong shapes are a failure too
        return
    assert verdict.holds == "fails"


def test_an_erratum_that_is_right_would_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"S4D-LegS": {"Path-X": "✗"}, "S4D-Inv": {"Path-X": "92.80"}, "S4D-Lin": {"Path-X": "✗"}}
    table = type("Table", (), {"published": row})
    monkeypatch.setattr(errata, "RECIPES", {"lra": table})
    assert CLAIMS["erratum-path-x"].check().holds == "holds"


# -- costs -----------------------------------------------------------------------------------------


def test_costs_are_counted() -> None:
    x = torch.zeros(1000)

    def run() -> torch.Tensor:
        y = x + 1  # 4000 bytes
        z = y * 2  # 8000 alive
        del y
        z.add_(1)  # nothing new
        return z[:10]  # a view

    assert kernel_costs.cost(run) == (8000, 2000)


def test_sums_by_modes_are_the_kernels() -> None:
    A, B, C = kernel_identities.parameters("inv", 16)
    step = kernel_identities.bilinear(A, B, kernel_identities.DT)
    summed = kernel_costs.vandermonde_by_modes((C * step.B_now)[0], step.A_bar[0], 100)
    K = kernel_identities.vandermonde(step, C, 100)[0]
    assert kernel_identities.largest_off(2 * summed.real, K) < 1e-12


# -- findings --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FINDINGS)
def test_findings_name_a_table_and_wait_for_its_results(name: str) -> None:
    finding = FINDINGS[name]
    assert {row for group in finding.rows for row in group} <= set(RECIPES[finding.table].rows)
    assert finding.statement.endswith(".")
    assert finding.quote
    assert "section" in finding.where or "appendix" in finding.where
    verdict = finding.decide({})
    assert verdict.holds == "not decided"
    assert f"'{finding.table}'" in verdict.effect


def test_every_table_decides_a_finding() -> None:
    """But for two that show the runs of Table 4 beside what others have published."""
    shown_only = {"scifar-full", "bidmc-full"}
    assert {finding.table for finding in FINDINGS.values()} == set(RECIPES) - shown_only


def test_a_finding_is_decided_by_its_rule() -> None:
    def rule(evidence: Evidence) -> Verdict:
        (row,) = evidence.rows[0]
        return Verdict("holds", f"{sum(evidence.values(row, 'Text')) / 2}")

    rows = [("S4D-Inv",)]
    finding = Finding("test-only", "It is so.", "is so", "section 9", "lra", rows, rule)
    text = {seed: score_of(x, accuracy=True) for seed, x in enumerate((80.0, 82.0))}
    results: Scores = {"lra": {"S4D-Inv": {"Text": text}}}
    assert finding.decide(results) == Verdict("holds", "81.0")
    assert finding.decide({"lra": {}}).holds == "not decided"


def test_a_finding_knows_the_papers_numbers() -> None:
    found = FINDINGS["path-x-training-b-helps"].published
    assert found == {"S4D": {"Path-X": "92.12 (0.34)"}, "frozen B": {"Path-X": "91.66 (0.62)"}}
    assert FINDINGS["random-real"].published == {}  # a picture in the paper


# -- the printed table -----------------------------------------------------------------------------


def test_the_table_shows_every_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(claim, Verdict("holds", "42 of 42", "in a sense")) for claim in CLAIMS.values()]
    found += [(finding, finding.decide({})) for finding in FINDINGS.values()]
    monkeypatch.setattr("s4d_torch.cli.paper.judge", lambda results: iter(found))
    console = Console(width=80, record=True, quiet=False, force_terminal=False)
    with console.capture() as capture:
        print_claims(console)
    text = capture.get()
    for name in (*CLAIMS, *FINDINGS):
        assert name in text
    assert "42 of 42" in text
    assert "in a sense." in text
    assert text.count("printed:") == text.count("right:") == len(ERRATA)
    last = text.strip().splitlines()[-1]
    assert last == (
        f"{len(CLAIMS) + len(FINDINGS)} claims: {len(CLAIMS)} hold, {len(FINDINGS)} not decided"
    )
    assert max(map(len, text.splitlines())) <= 80


def test_errata_come_after_claims_and_before_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = {
        name: replace(claim, check=lambda: Verdict("holds", "1")) for name, claim in CLAIMS.items()
    }
    monkeypatch.setattr("s4d_torch.paper.claims.CLAIMS", quick)
    names = [stated.name for stated, _ in judge()]
    assert set(names) == {*CLAIMS, *FINDINGS}
    kinds = [(name in ERRATA) + 2 * (name in FINDINGS) for name in names]
    assert kinds == sorted(kinds)


def test_verdicts_are_counted_in_plain_words() -> None:
    verdicts = ["fails", "holds", "not decided", "holds in part", "holds"]
    counted = count_verdicts(verdicts, "claims")
    assert counted == "5 claims: 2 hold, 1 fail, 1 hold in part, 1 not decided"
    assert count_verdicts([], "claims") == "0 claims"


def test_what_is_said_together_is_punctuated() -> None:
    assert sentences("3 of 4", "", "Only weakly.", "at N: ") == "3 of 4. Only weakly. at N:"
