"""Pathfinder and Path-X: images made here, or the Long Range Arena's, read pixel by pixel."""

from s4d_torch.data.tasks.pathfinder.loader import (
    PathfinderOptions,
    PathXOptions,
    load_pathfinder,
    load_pathx,
)

__all__ = ["PathfinderOptions", "PathXOptions", "load_pathfinder", "load_pathx"]
