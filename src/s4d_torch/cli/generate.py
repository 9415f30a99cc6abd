"""``s4d generate``: new sequences from a run that has learned what comes next."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from rich.console import Console

from s4d_torch.cli.common.display import as_json, say
from s4d_torch.cli.common.flags import DataDir, RunPath, Switch, shown
from s4d_torch.cli.common.options import check_options, data_folder, load_named
from s4d_torch.cli.common.parsing import CommandError, UsageError, misuse
from s4d_torch.data.dataset import Array
from s4d_torch.data.user_files import as_text, check_format, read_symbols, write_symbols
from s4d_torch.nn import SequenceModel
from s4d_torch.nn.stepping.generation import Generation
from s4d_torch.training import Run


@dataclass(frozen=True)
class Generate:
    """Generate sequences with the best weights of a run, which has learned what comes next.

    Such a run is made by 's4d train digits-pixels' in half a minute, without a download; also by
    spoken-audio, mnist-pixels and fsdd-audio. Symbols are written as sound (.wav), pictures (.png)
    or numbers (.npy, .txt), after those of the prompt.
    """

    run_folder: RunPath
    """the folder that 's4d train' made, or a name that 's4d models' lists"""
    out: Annotated[Path | None, shown("FILE", "printed")] = None
    """where to write: .wav, .png, .npy or .txt"""
    n: Annotated[int | None, shown("INT", "up to the length in training")] = None
    """symbols of each sequence, after those of the prompt"""
    count: Annotated[int | None, shown("INT", "one for each prompt")] = None
    """sequences"""
    temperature: float = 1.0
    """above 1 draws more freely, below 1 more safely; 0 takes the likeliest symbol"""
    top_k: Annotated[int | None, shown("INT", "all")] = None
    """how many of the likeliest symbols are drawn from"""
    prompt: Annotated[str | None, shown("FILE|test", "none")] = None
    """begin as this file does (.wav, .png, .npy, .txt), or as sequences of the run's test split"""
    given: Annotated[int | None, shown("INT", "all")] = None
    """how many symbols of the prompt are taken"""
    seed: int = 0
    """of the random numbers"""
    width: Annotated[int | None, shown("INT", "that of a square")] = None
    """pixels in a row of a picture"""
    zoom: int = 1
    """how large a pixel of a picture is drawn"""
    data_dir: DataDir = None
    """where data is, for --prompt test"""
    json: Switch = False
    """print a JSON object"""

    def run(self, console: Console) -> None:
        check_options(self, at_least_one=["n", "count", "top_k", "given", "width", "zoom"])
        if not 0 <= self.temperature < float("inf"):
            raise UsageError(f"--temperature must be 0 or more, got {self.temperature}")
        if self.seed < 0:
            raise UsageError(f"--seed must be at least 0, got {self.seed}")
        run = load_named(self.run_folder)
        model = run.model
        if run.signature.kind != "generation" or not isinstance(model, SequenceModel):
            raise CommandError(
                f"{self.run_folder} has learned a {run.signature.kind}, not what comes next; "
                "train a task such as digits-pixels or spoken-audio"
            )
        if self.out is not None:
            with misuse("--"):
                check_format(self.out, run.signature, self.width)
        prompts = self._prompts(run)
        n = run.signature.length - prompts.shape[1] if self.n is None else self.n
        if n < 1:
            raise UsageError(
                f"--n: the prompt is {prompts.shape[1]} long, and training had sequences of "
                f"{run.signature.length}; say how many symbols are to follow"
            )
        generation = Generation(model, len(prompts))
        if prompts.shape[1]:
            generation.read(torch.from_numpy(prompts))
        began = time.perf_counter()
        generator = torch.Generator().manual_seed(self.seed)
        written = generation.write(n, self.temperature, self.top_k, generator=generator)
        seconds = time.perf_counter() - began
        symbols = np.concatenate([prompts, written.numpy()], axis=1)
        largest = max(float(layer.abs().max()) for layer in generation.state.layers)
        if self.out is not None:
            write_symbols(self.out, symbols, run.signature, width=self.width, zoom=self.zoom)
        self._tell(console, symbols, n, seconds, largest)

    def _tell(
        self, console: Console, symbols: Array, n: int, seconds: float, largest: float
    ) -> None:
        speed = len(symbols) * n / seconds
        if self.json:
            described = {
                "run": self.run_folder,
                "out": self.out,
                "sequences": len(symbols),
                "n": n,
                "seconds": seconds,
                "symbols_per_second": speed,
                "largest_state": largest,
            }
            print(as_json(described | ({} if self.out else {"symbols": symbols.tolist()})))
        elif self.out is None:
            say(console, as_text(symbols))
        else:
            say(
                console,
                f"wrote {self.out}: {len(symbols)} x {n:,} symbols in {seconds:.2g} s, "
                f"{speed:,.0f} per second; the largest number in the state is {largest:.3g}",
            )

    def _prompts(self, run: Run) -> Array:
        """(count, length), of length 0 without a prompt."""
        if self.prompt is None:
            return np.zeros((self.count or 1, 0), dtype=np.int64)
        if self.prompt == "test":
            split = run.dataset(data_folder(self.data_dir)).test
            count = min(self.count or 1, len(split))
            sequences = [split.inputs[0][int(i)] for i in split.index[:count]]
        else:
            sequences = read_symbols(Path(self.prompt), run.signature)
        sequences = [each[: self.given] for each in sequences]
        if len({len(each) for each in sequences}) != 1:
            raise CommandError(
                f"{self.prompt}: the sequences differ in length; take as much of each with --given"
            )
        prompts = np.stack(sequences).astype(np.int64)
        if len(prompts) == 1 and self.count is not None:
            prompts = prompts.repeat(self.count, axis=0)
        if self.count not in (None, len(prompts)):
            raise UsageError(
                f"--count {self.count}: {self.prompt} has {len(prompts)} sequences; leave it out"
            )
        return prompts
