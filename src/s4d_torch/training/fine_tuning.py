"""Fine-tuning: a run that begins with the best weights of another, and in that one's units."""

from dataclasses import asdict, replace
from pathlib import Path

from s4d_torch.data.dataset import Dataset, Signature
from s4d_torch.nn.pretrained import Pretrained
from s4d_torch.training.config import Config, differences
from s4d_torch.training.saved import packaged
from s4d_torch.training.saved.run_folder import RunFolder

HEAD = "decoder."  # the weights that turn features into classes or numbers


def keeps_head(old: Signature, new: Signature) -> bool:
    """Whether both predict the same: the same classes in the same order, or the same number."""
    same_name = not (old.target and new.target) or old.target == new.target
    return same_name and all(
        getattr(old, name) == getattr(new, name) for name in ("kind", "outputs", "classes")
    )


def in_units_of(old: Signature, new: Signature) -> Signature:
    """``new`` with the shifts, scales and step of time of ``old``, in which weights were learned.

    Those of the targets too, where the head is kept.
    """
    inputs = replace(new, input_shift=old.input_shift, input_scale=old.input_scale)
    if old.clock is not None and new.clock is not None:
        inputs = replace(inputs, clock=replace(new.clock, step=old.clock.step))
    if not keeps_head(old, new):
        return inputs
    return replace(inputs, target_shift=old.target_shift, target_scale=old.target_scale)


def in_known_units(dataset: Dataset, config: Config, folder: RunFolder | None) -> Dataset:
    """The data as a run reads it: one that fine-tunes, in the units of the run it begins with.

    Data that does not fit that run is refused here, before there is a folder.
    """
    if config.training.init_from is None:
        return dataset
    if folder is not None and folder.begun:
        known = folder.signature()
    else:
        source = RunFolder(packaged.find(config.training.init_from))
        known = source.signature()
        _check_inputs(source.path, known, dataset.signature)
    return replace(dataset, signature=in_units_of(known, dataset.signature))


def begin(
    model: Pretrained, config: Config, signature: Signature, folder: RunFolder | None
) -> list[str]:
    """Put the weights that the config names into ``model``; what there is to say about it.

    The head stays new where other classes, or another number, are to be predicted.
    """
    if config.training.init_from is None or (folder is not None and folder.begun):
        return []  # there is nothing to load, or the checkpoint has it
    source = RunFolder(packaged.find(config.training.init_from))
    old, best = source.signature(), source.best_model()
    if best is None:
        raise FileNotFoundError(f"{source.path} has no weights yet: no epoch of it is done")
    kept = keeps_head(old, signature)
    weights, places = (
        {name: x for name, x in each.state_dict().items() if kept or not name.startswith(HEAD)}
        for each in (best, model)
    )
    shapes, wanted = ({name: x.shape for name, x in each.items()} for each in (weights, places))
    if shapes != wanted:
        raise _misfit(source, config)
    model.load_state_dict(weights, strict=kept)
    said = [f"begins with the weights of {source.path}; inputs keep the units of its data"]
    if not kept:
        said.append(f"the head is new: {_aim(old)} there, {_aim(signature)} here")
    if old.sample_rate != signature.sample_rate:
        said.append(
            f"timescales were learned at {_rate(old)} and the data is at {_rate(signature)}; "
            "they count in samples"
        )
    if (old.clock is None) != (signature.clock is None):
        there, here = ("gaps of its clock", "are")
        if old.clock is None:
            there, here = ("evenly spaced samples", "are not")
        said.append(f"timescales were learned from {there}; the samples here {here} evenly spaced")
    return said


def _misfit(source: RunFolder, config: Config) -> ValueError:
    old, new = (
        {part: asdict(getattr(each, part)) for part in ("model", "method")}
        for each in (source.config(), config)
    )
    listed = "".join(f"\n  {change}" for change in differences(old, new))
    return ValueError(
        f"the weights of {source.path} do not fit a model of this config:{listed}\n"
        "leave these options as they are there"
    )


def _check_inputs(source: Path, old: Signature, new: Signature) -> None:
    for name in ("tokens", "towers", "features"):
        before, now = getattr(old, name), getattr(new, name)
        if before != now:
            raise ValueError(
                f"the run in {source} was made for other inputs: {name} {before} there, {now} "
                "here; fine-tuning needs the same"
            )
    if old.clock is not None and new.clock is not None and old.clock.dates != new.clock.dates:
        kinds = {True: "dates", False: "numbers"}
        raise ValueError(
            f"the run in {source} was made for times that are {kinds[old.clock.dates]}, here they "
            f"are {kinds[new.clock.dates]}, and their unit is unknown; give them as they were there"
        )
    if old.channels != new.channels and sorted(old.channels) == sorted(new.channels):
        raise ValueError(
            f"the run in {source} has the channels {', '.join(old.channels)}, this data has them "
            f"as {', '.join(new.channels)}; give them in the same order"
        )


def _aim(signature: Signature) -> str:
    if signature.kind != "classification":
        return f"the {signature.kind} of {signature.target or 'a number'}"
    return f"classes {', '.join(signature.classes) or signature.outputs}"


def _rate(signature: Signature) -> str:
    return "an unknown rate" if signature.sample_rate is None else f"{signature.sample_rate:g} Hz"
