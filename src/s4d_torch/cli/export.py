"""``s4d export``: a trained model as files for other runtimes."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console

from s4d_torch._progress import note
from s4d_torch._registry import unknown
from s4d_torch.cli.common.display import as_json, say
from s4d_torch.cli.common.flags import DataDir, RunPath, Switch, shown
from s4d_torch.cli.common.options import check_options, data_folder, load_named
from s4d_torch.cli.common.parsing import CommandError, UsageError
from s4d_torch.data import Dataset
from s4d_torch.data.task import TASKS
from s4d_torch.deploy.export.card import fixed_step
from s4d_torch.deploy.export.exporter import Exported, export_model
from s4d_torch.deploy.export.formats import FORMATS
from s4d_torch.nn import SequenceModel
from s4d_torch.nn.baselines import load_model
from s4d_torch.nn.pretrained import CONFIG as MODEL_CONFIG
from s4d_torch.nn.pretrained import standardized_data
from s4d_torch.training.saved import packaged
from s4d_torch.training.saved.run_folder import CONFIG as RUN_CONFIG


@dataclass(frozen=True)
class Export:
    """Export a model: whole sequences of any length, and single steps with their state.

    The files are checked against the model before they are kept, and come with a model card. To C
    it is single steps alone: s4d.h and s4d.c, which need no library but that of C. To web it is one
    page, which listens, reads drawings or numbers, and needs no server.
    """

    run_folder: RunPath
    """the folder that 's4d train' made, one of save_pretrained, or a name of 's4d models'"""
    to: Annotated[str, tyro.conf.arg(metavar="{onnx,pt2,c,web}")] = "onnx"
    """ONNX, an archive of torch.export, C99, or a page for a browser"""
    out: Annotated[Path | None, shown("FOLDER", "export-onnx in RUN, or NAME-export-onnx")] = None
    """the folder to write; an earlier export in it is replaced"""
    quantize: Annotated[
        Literal["none", "int8", "float16"], tyro.conf.arg(metavar="{none,int8,float16}")
    ] = "none"
    """how the mixing matrices are stored; the change of the scores is shown"""
    state: Annotated[
        Literal["float32", "float64"] | None,
        shown("{float32,float64}", "float32 in C, else float64"),
    ] = None
    """the precision of the state that steps carry; only C has a choice"""
    name: Annotated[str | None, shown("NAME", "s4d in C, the task of a page")] = None
    """what functions and files in C begin with, or the title of a page"""
    rate: Annotated[float, tyro.conf.arg(metavar="FLOAT")] = 1.0
    """samples of the training data that one sample will stand for: 2 for half the sampling rate"""
    tolerance: Annotated[float | None, shown("FLOAT", "1e-5 in C and web, else 1e-4")] = None
    """the largest difference from the model that is accepted, of the largest output"""
    data_dir: DataDir = None
    """where the data of the run is, to measure what quantisation changes"""
    json: Switch = False
    """print the facts of the export as a JSON object"""

    def run(self, console: Console) -> None:
        if self.to not in FORMATS:
            raise UsageError(unknown("format for --to", self.to, FORMATS))
        check_options(self, above_zero=["rate", "tolerance"])
        model, known, dataset, why = self._source()
        quantize = None if self.quantize == "none" else self.quantize
        target = f"export-{self.to}-{quantize}" if quantize else f"export-{self.to}"
        done = export_model(
            model,
            self._out(target),
            to=self.to,
            quantize=quantize,
            rate=self.rate,
            state=self.state,
            dataset=dataset,
            name=self._title(),
            **known,
            tolerance=self.tolerance,
            report=lambda stage: note(f"export: {stage}"),
        )
        if self.json:
            print(as_json({"folder": str(done.folder), **done.facts}))
            return
        for line in [*summary(done), *([why] if why else [])]:
            say(console, line)

    def _title(self) -> str | None:
        """What a page is called, where nobody says: the name of a model of the package."""
        if self.name is None and self.to == "web" and packaged.is_packaged(self.run_folder):
            return packaged.find(self.run_folder).name
        return self.name

    def _out(self, target: str) -> Path:
        if self.out:
            return self.out.expanduser()
        if packaged.is_packaged(self.run_folder):
            return Path(f"{packaged.find(self.run_folder).name}-{target}")
        return Path(self.run_folder) / target

    def _source(self) -> tuple[SequenceModel, dict[str, Any], Dataset | None, str]:
        """The model, what is known of its data, and why there is none to measure with."""
        folder = packaged.find(self.run_folder)
        if (folder / RUN_CONFIG).is_file():
            run, dataset, why = load_named(self.run_folder), None, ""
            if self.quantize != "none":
                try:
                    dataset = run.dataset(data_folder(self.data_dir, download=False))
                except (OSError, ValueError, ImportError) as error:
                    why = f"the scores were not measured, as the data cannot be read: {error}"
            config = run.config
            task = TASKS.get(config.task)
            known = {"signature": run.signature, "task": task, "options": config.data}
            return _sequence_model(run.model), known, dataset, why
        if (folder / MODEL_CONFIG).is_file():
            model = _sequence_model(load_model(folder))
            if model.preprocessing is not None:
                warnings.warn(standardized_data(model.preprocessing, folder), stacklevel=2)
            return model, {}, None, ""
        raise CommandError(
            f"{folder} holds neither {RUN_CONFIG} nor {MODEL_CONFIG}; name a folder that "
            "'s4d train' or save_pretrained made"
        )


def summary(done: Exported) -> list[str]:
    """What was written, how well it agrees, and what quantisation changed."""
    facts, checked = done.facts, done.facts["checked"]
    files = filter(None, (facts["sequence"], facts["step"]))
    written = ", ".join(f"{each['file']} ({_size(each['bytes'])})" for each in files)
    header = (facts["step"] or {}).get("header")
    named = [written, *([header] if header else []), "README.md", "export.json"]
    lines = [f"wrote {done.folder}: {', '.join(named)}"]
    if checked["difference"] is None:
        lines.append(f"they were not checked against the model: {checked['why_not']}")
    else:
        lines.append(
            f"they answer as the model does: the largest difference is {done.difference:.1e} of "
            f"the largest output ({checked['tolerance']:g} allowed)"
        )
    if header:
        step = facts["step"]
        lines.append(
            f"constants {_size(step['constants'])}, state {_size(step['state_bytes'])} in "
            f"{step['state']}; {step['header']} says how to build and use them"
        )
    if facts["why_no_step"]:
        lines.append(facts["why_no_step"])
    if clock := (facts["data"] or {}).get("clock"):
        lines.append(fixed_step(clock, facts["rate"]))
    if facts["quantized"] is not None:
        lines += _quantisation(facts)
    return lines


def _quantisation(facts: Mapping[str, Any]) -> list[str]:
    found = facts["quantized"]
    sizes = ", ".join(
        f"{facts[name]['file']} {_size(before)} -> {_size(facts[name]['bytes'])}"
        for name, before in found["bytes_before"].items()
    )
    lines = [
        f"mixing matrices as {found['to']}: {sizes}",
        f"on sample inputs the output changes by {found['output_change']:.1e} of the largest",
    ]
    if scores := found["scores"]:
        changes = ", ".join(
            f"{name} {before:.5g} -> {scores['after'][name]:.5g}"
            for name, before in scores["before"].items()
        )
        lines.append(f"{scores['split']}, {scores['sequences']} sequences: {changes}")
    return lines


def _sequence_model(model: Any) -> SequenceModel:
    if not isinstance(model, SequenceModel):
        raise CommandError(
            f"only state space models can be exported, and this is a {type(model).__name__}"
        )
    return model


def _size(count: int) -> str:
    return f"{count / 1e6:.2f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"
