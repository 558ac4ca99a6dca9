"""Discrete Fourier transforms: the ops (`transforms`) and what NumPy's arguments mean (`arguments`)."""
