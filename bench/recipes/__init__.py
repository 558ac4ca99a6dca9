"""The recipes of ``docs/recipes`` beside PyTorch and JAX: the programs of the pages are ours, the others stand here."""
