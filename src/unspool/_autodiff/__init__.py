"""Derivatives: sweeps over the graph, and the functions users call."""
