"""The two sweeps over a graph, and the derivatives of calls and of chains of them."""
