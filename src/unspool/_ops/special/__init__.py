"""Special functions, a module for each family. SciPy computes them; here are their derivatives.

They are imported with `unspool.special`, not with the package. What the package itself has of them is in
`unspool._ops.elementwise.special`.
"""
