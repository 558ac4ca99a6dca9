"""unspool beside other libraries: what they need to be told, and bridges between their derivatives and ours.

A module for each neighbour, imported when it is used. autoray (and with it quimb, cotengra and symmray), einops and
TensorLy need nothing from you: they know unspool as soon as both are imported.
"""

__all__: list[str] = []
