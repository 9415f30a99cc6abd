"""What is in a Pathfinder image: how long, how thick, how many."""

from dataclasses import dataclass
from typing import Any

import numpy as np

VERSION = 1  # of the images; a change of anything that changes them takes the next number

# At three sizes of image, after the Long Range Arena's; straight lines between. But curves keep
# further apart here than the dashes of a curve, so that an eye can follow each of them.
SIZES = (32, 64, 128)
MEASURES = {
    "dash": (1.8, 4.0, 6.0),
    "gap": (1.6, 2.4, 4.5),
    "thickness": (1.0, 1.2, 1.6),
    "dot_radius": (1.4, 2.4, 3.4),
    "clearance": (2.6, 4.4, 7.0),
    "continuity": (1.3, 1.5, 1.6),
}
COUNTS = {"distractors": (4, 6, 8), "paddles": (4, 5, 6)}


@dataclass(frozen=True)
class SceneOptions:
    """What is in an image; lengths in pixels. :meth:`at` fills them in for a size."""

    size: int  # of the square image
    dash: float  # length of a dash
    gap: float  # from the end of a dash to the next dash of its curve
    thickness: float  # of a dash
    dot_radius: float  # of the two dots
    clearance: float  # between the centre lines of different curves, at least
    continuity: float  # a curve turns by less than 90 degrees / continuity from dash to dash
    distractors: int  # short curves, fewer where there is no room
    paddles: int  # single dashes, fewer where there is no room
    contour_length: int = 14  # dashes of each of the two long curves
    distractor_length: int = 4  # dashes of a short curve
    contrast: float = 0.8  # brightness of the dashes; that of the dots is 1

    def __post_init__(self) -> None:
        for name in MEASURES:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")
        few = f"distractors {self.distractors}, paddles {self.paddles}"
        for holds, rule in (
            (self.size >= SIZES[0], f"size must be at least {SIZES[0]} pixels, got {self.size}"),
            (
                self.thickness < self.clearance < self.pitch,
                f"clearance {self.clearance} must be above thickness {self.thickness}, or curves "
                f"touch, and below dash + gap = {self.pitch:g}, or a curve blocks itself",
            ),
            (self.contour_length >= 4, f"contour_length must be 4 or more: {self.contour_length}"),
            (
                0 < self.distractor_length < self.contour_length,
                f"distractor_length {self.distractor_length} must be at least 1 and below "
                f"contour_length {self.contour_length}",
            ),
            (min(self.distractors, self.paddles) >= 0, f"counts must not be negative: {few}"),
            (self.continuity >= 1, f"continuity must be at least 1, got {self.continuity}"),
            (0 < self.contrast <= 1, f"contrast must be in (0, 1], got {self.contrast}"),
        ):
            if not holds:
                raise ValueError(rule)

    @staticmethod
    def at(size: int, **changes: Any) -> "SceneOptions":
        """The usual measures for an image of this size, with ``changes`` to any field."""
        usual = {name: float(np.interp(size, SIZES, at)) for name, at in MEASURES.items()}
        counts = {name: round(np.interp(size, SIZES, at)) for name, at in COUNTS.items()}
        return SceneOptions(size, **(usual | counts | changes))

    @property
    def pitch(self) -> float:
        """From dash to dash along a curve."""
        return self.dash + self.gap
