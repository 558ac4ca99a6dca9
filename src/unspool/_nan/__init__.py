"""Where NaN come from: what is behind `unspool.debug.check_nan` and `unspool.debug.first_nan`."""
