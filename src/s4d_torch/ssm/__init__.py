"""The mathematics of state space models: pure functions on tensors, in the order of the flow.

autodiff -> hippo -> initialization -> constraint -> discretization -> pairs -> kernel ->
convolution -> compiled (the same as machine code) -> recurrence -> state_space -> engine
"""
