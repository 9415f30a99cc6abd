"""The paper's theory and its errata as checks: deterministic, and a few seconds at most.

Each module registers its claims in ``CLAIMS``, in this order.
"""

# isort: off
from s4d_torch.paper.claims.theory import basis_functions
from s4d_torch.paper.claims.theory import kernel_identities
from s4d_torch.paper.claims.theory import kernel_costs
from s4d_torch.paper.claims.theory import errata
from s4d_torch.paper.claims.theory import model_properties
from s4d_torch.paper.claims.theory import eigenvalue_laws
# isort: on

__all__ = ["basis_functions", "eigenvalue_laws", "errata", "kernel_costs", "kernel_identities"]
__all__ += ["model_properties"]
