"""The Hub without a network: what is uploaded, and what is read from the cache."""

import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Generator
from torch.testing import assert_close

from s4d_torch import SequenceModel, load
from s4d_torch.deploy import HubSequenceModel, cards, push_to_hub
from s4d_torch.training import default_config, train
from s4d_torch.training.saved import packaged

COMMIT = "0" * 40


def model(kind: type[SequenceModel] = HubSequenceModel, **options: Any) -> Any:
    options = {"norm": "batch", "train_A": False, "engine": "fft", **options}
    return kind(2, 3, 8, 2, d_state=4, generator=Generator().manual_seed(0), **options)


def assert_equal(a: SequenceModel, b: SequenceModel) -> None:
    assert a.config == b.config
    ours, theirs = a.state_dict(), b.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


class FakeApi:
    """The calls of HfApi, onto a folder."""

    root: Path
    calls: list[tuple[str, Any]]

    def __init__(self, token: str | None = None) -> None:
        self.calls.append(("token", token))

    def create_repo(self, repo_id: str, *, private: bool | None, exist_ok: bool) -> Any:
        assert exist_ok
        self.calls.append(("private", private))
        (self.root / repo_id).mkdir(parents=True, exist_ok=True)
        return SimpleNamespace(repo_id=repo_id)

    def file_exists(self, repo_id: str, name: str, *, revision: str | None) -> bool:
        return (self.root / repo_id / name).exists()

    def upload_folder(self, *, repo_id: str, folder_path: str, **options: Any) -> Any:
        self.calls.append(("upload", options))
        shutil.copytree(folder_path, self.root / repo_id, dirs_exist_ok=True)
        return SimpleNamespace(commit_url=f"https://example.org/{repo_id}/commit/1")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[FakeApi]:
    FakeApi.root, FakeApi.calls = tmp_path / "hub", []

    def snapshot_download(repo_id: str, *, allow_patterns: list[str], **options: Any) -> str:
        FakeApi.calls.append(("download", {"files": allow_patterns, **options}))
        return str(FakeApi.root / repo_id)

    fake = SimpleNamespace(HfApi=FakeApi, snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", fake)
    return FakeApi


def test_up_and_down_again(hub: type[FakeApi]) -> None:
    first = model()
    address = first.push_to_hub("user/name", private=True, token="t", commit_message="First")
    assert address == "https://example.org/user/name/commit/1"
    assert ("token", "t") in hub.calls
    assert ("private", True) in hub.calls
    names = {path.name for path in (hub.root / "user/name").iterdir()}
    assert names == {"model.safetensors", "config.json", "README.md"}
    again = HubSequenceModel.from_pretrained("user/name", revision="main")
    assert type(again) is HubSequenceModel
    assert_equal(again, first)
    options = hub.calls[-1][1]
    assert options["revision"] == "main"
    assert options["files"] == ["model.safetensors", "config.json"]
    trained = {name for name, x in first.named_parameters() if x.requires_grad}
    assert {name for name, x in again.named_parameters() if x.requires_grad} == trained
    u = torch.randn(2, 9, 2, generator=Generator().manual_seed(1))
    assert_close(again.eval()(u)[0], first.eval()(u)[0], rtol=0, atol=0)
    again.train()(u)[0].sum().backward()


def test_a_card_of_the_users_own_is_kept(hub: type[FakeApi]) -> None:
    (hub.root / "user/name").mkdir(parents=True)
    (hub.root / "user/name/README.md").write_text("mine")
    push_to_hub(model(SequenceModel), "user/name")
    assert (hub.root / "user/name/README.md").read_text() == "mine"


def test_the_card_shows_how_to_load(hub: type[FakeApi]) -> None:
    model(encoder="embedding").push_to_hub("user/name")
    card = (hub.root / "user/name/README.md").read_text()
    assert card.startswith("---\nlibrary_name: s4d-torch\n")
    assert 'HubSequenceModel.from_pretrained("user/name")' in card
    assert "reads 2 kinds of tokens and gives 3 outputs" in card


def test_the_card_of_a_run_has_the_fields_of_the_packages_models(
    hub: type[FakeApi], tmp_path: Path
) -> None:
    config = default_config("digits")
    training = replace(config.training, epochs=1, train_size=64, eval_size=32)
    shape = replace(config.model, d_model=8, n_layers=1)
    config = replace(config, training=training, model=shape)
    run = train("digits", config, out=tmp_path / "private" / "mine")
    push_to_hub(run, "user/name", about={"not_for": "cheques"})
    card = (hub.root / "user/name/README.md").read_text()
    packaged_card = (packaged.folder_of("words") / packaged.PAGE).read_text()
    for bold in re.findall(r"\*\*[a-z ]+\*\*", packaged_card):
        assert bold in card
    assert "# name: " in card
    assert "one of 10 classes: 0, 1, 2" in card
    assert "**not for** cheques" in card
    assert f"{run.summary['parameters']:,} parameters" in card
    assert "95 % interval" in card
    assert "32 cases" in card
    assert str(tmp_path) not in card
    assert 'HubSequenceModel.from_pretrained("user/name")' in card
    with pytest.warns(UserWarning, match="standardised|raw"):
        assert_equal(HubSequenceModel.from_pretrained("user/name"), run.model)  # type: ignore[arg-type]


def test_no_place_on_the_owners_machine_is_told() -> None:
    typed = ["/data/ann/bin/s4d", "train", "/data/ann/beats.csv", "--out=/data/ann/runs/a", "--lr"]
    assert cards._command([*typed, "0.01"]) == "s4d train beats.csv --out=a --lr 0.01"
    assert cards._command([]) == "not said"


def test_a_model_of_the_package_goes_with_its_card(hub: type[FakeApi]) -> None:
    push_to_hub(load("words"), "user/name")
    card = (hub.root / "user/name/README.md").read_text()
    assert packaged.card("words").not_for in card
    assert "82.22%" in card


def test_words_that_no_card_has_are_refused(hub: type[FakeApi]) -> None:
    with pytest.raises(ValueError, match=r"unknown field of a card 'license'.*licence"):
        push_to_hub(load("words"), "user/name", about={"license": "MIT"})
    with pytest.raises(ValueError, match="give the run"):
        push_to_hub(model(), "user/name", about={"licence": "MIT"})
    assert not hub.root.exists()


@pytest.mark.parametrize("writer", [SequenceModel, HubSequenceModel])
@pytest.mark.parametrize("reader", [SequenceModel, HubSequenceModel])
def test_both_classes_read_what_either_wrote(
    writer: type[SequenceModel], reader: type[SequenceModel], tmp_path: Path
) -> None:
    first = model(writer, dtype=torch.float64)
    first.save_pretrained(tmp_path)
    again = reader.from_pretrained(tmp_path)
    assert type(again) is reader
    assert_equal(again, first)
    assert next(reader.from_pretrained(tmp_path, dtype=torch.float32).parameters()).dtype == (
        torch.float32
    )


def test_the_real_client_finds_its_cache(tmp_path: Path) -> None:
    """The layout of the cache is the client's own; nothing goes over the network."""
    pytest.importorskip("huggingface_hub")
    first, repo = model(), tmp_path / "models--user--name"
    first.save_pretrained(repo / "snapshots" / COMMIT)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(COMMIT)
    again = HubSequenceModel.from_pretrained("user/name", cache_dir=tmp_path, local_files_only=True)
    assert_equal(again, first)


def test_without_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r"huggingface_hub.*extra 'hub'"):
        model().push_to_hub("user/name")
    with pytest.raises(ImportError, match=r"huggingface_hub.*extra 'hub'"):
        HubSequenceModel.from_pretrained("user/name")
    model().save_pretrained(tmp_path)
    HubSequenceModel.from_pretrained(tmp_path)  # a folder needs no client


@pytest.mark.parametrize("name", ["./nowhere", "a/b/c", "~/x", "user/"])
def test_neither_a_folder_nor_a_repository(name: str) -> None:
    with pytest.raises(FileNotFoundError, match="no folder"):
        HubSequenceModel.from_pretrained(name)


def test_only_a_sequence_model_goes_up(hub: type[FakeApi]) -> None:
    with pytest.raises(TypeError, match="expected a SequenceModel or a run of one, got a Linear"):
        push_to_hub(torch.nn.Linear(1, 1), "user/name")  # type: ignore[arg-type]
