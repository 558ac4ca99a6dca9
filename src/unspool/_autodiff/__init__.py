"""Derivatives: sweeps over the graph, and the functions users call."""

# The sweeps need each other (`unspool._autodiff.late`), so there are all of them or none.
import unspool._autodiff.forward  # noqa: F401
