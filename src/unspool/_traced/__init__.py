"""Functions that are traced once and then placed as calls: `unspool.fragment` and `unspool.remat`."""
