"""Make the spoken digits that come with the package of the original recordings.

python benchmarks/embed_spoken.py RECORDINGS, the folder 'recordings' of the Free Spoken Digit
Dataset.
"""

import sys
from pathlib import Path

import numpy as np

from s4d_torch.data.files.sound import read_clip
from s4d_torch.data.tasks.quantization import encode_mu_law
from s4d_torch.data.tasks.spoken import CLIPS, LEVELS, LONGEST, RATE

SPEAKERS = ("george", "jackson", "nicolas")
TAKES = 20


def embedded(recordings: Path) -> dict[str, np.ndarray]:
    """The arrays of ``spoken.npz``, in the order of digits, speakers and takes."""
    names = [(d, s, t) for d in range(10) for s in range(len(SPEAKERS)) for t in range(TAKES)]
    clips = []
    for digit, speaker, take in names:
        file = recordings / f"{digit}_{SPEAKERS[speaker]}_{take}.wav"
        clip = read_clip(file, RATE)[:, 0].astype(np.float64)
        clips.append(encode_mu_law(clip / np.abs(clip).max(), LEVELS)[:LONGEST].astype(np.uint8))
    digits, speakers, takes = np.array(names, dtype=np.uint8).T
    lengths = np.array([len(clip) for clip in clips], dtype=np.uint16)
    return {
        "levels": np.concatenate(clips),
        "lengths": lengths,
        "digits": digits,
        "speakers": speakers,
        "takes": takes,
    }


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    np.savez_compressed(CLIPS, **embedded(Path(sys.argv[1])))  # type: ignore[arg-type]
    print(f"{CLIPS}: {CLIPS.stat().st_size:,} bytes")
