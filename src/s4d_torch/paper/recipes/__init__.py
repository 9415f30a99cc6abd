"""The paper's tables as data, and the sizes at which they can be run.

``recipe`` says what a table is, ``scales`` the sizes of its runs. ``ablation_tables`` and
``benchmark_tables`` hold what is trained, ``appendix_tables`` what the paper says in words,
``reference_tables`` what needs no training.
"""

from s4d_torch._registry import Registry
from s4d_torch.paper.recipes import ablation_tables, appendix_tables, benchmark_tables
from s4d_torch.paper.recipes.recipe import (
    Column,
    Recipe,
    printed_number,
    require_known,
    select_experiments,
)
from s4d_torch.paper.recipes.reference_tables import REFERENCE_TABLES, ReferenceTable
from s4d_torch.paper.recipes.scales import SCALES, ablation, describe_reduction, large, reduction

RECIPES: Registry[Recipe] = Registry("table")
for _table in (*ablation_tables.TABLES, *benchmark_tables.TABLES, *appendix_tables.TABLES):
    RECIPES.register(_table.name, _table)

__all__ = ["RECIPES", "REFERENCE_TABLES", "SCALES", "Column", "Recipe", "ReferenceTable"]
__all__ += ["ablation", "describe_reduction", "large", "printed_number", "reduction"]
__all__ += ["require_known", "select_experiments"]
