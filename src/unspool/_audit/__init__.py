"""Whether a gradient is to be trusted: what is behind `unspool.audit`."""
