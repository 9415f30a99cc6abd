"""The LSTM."""

import torch
from torch import Generator, Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from s4d_torch.nn.baselines.baseline import MODELS, Baseline, pool


@MODELS.register("RecurrentModel")
class RecurrentModel(Baseline):
    """Encoder -> ``nn.LSTM`` -> pooling -> decoder."""

    kind = "a recurrent network"

    def __init__(
        self,
        d_input: int,
        d_output: int,
        d_model: int = 128,
        n_layers: int = 1,
        *,
        encoder: str = "linear",
        pooling: str = "mean",
        bidirectional: bool = False,
        dropout: float = 0.0,
        towers: int = 1,
        generator: Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(locals())
        self.lstm = nn.LSTM(
            d_model,
            d_model,
            n_layers,
            batch_first=True,
            bidirectional=bidirectional,
            dropout=dropout if n_layers > 1 else 0.0,
            **self.factory,
        )
        self.finish((1 + bidirectional) * d_model, generator)
        with torch.no_grad():  # gates that forget nothing at first, or long sequences teach nothing
            for name, bias in self.lstm.named_parameters():
                if name.startswith("bias_ih"):
                    bias[d_model : 2 * d_model] = 1.0

    def features(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        if lengths is not None and self.lstm.bidirectional:  # it has to turn where sequences end
            packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
            read, _ = self.lstm(packed)
            x, _ = pad_packed_sequence(read, batch_first=True, total_length=x.shape[1])
        else:
            x, _ = self.lstm(x)
        return pool(x, lengths, self.config["pooling"])
