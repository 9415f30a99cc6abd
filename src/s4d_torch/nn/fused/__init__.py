"""What lies between the state spaces and the linear maps of a model, in one pass over memory each.

``pointwise`` are operators of torch, with their adjoints, and in plain torch where nothing is
compiled; ``pointwise_code`` are their loops.
"""
