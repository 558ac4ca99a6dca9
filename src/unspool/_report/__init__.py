"""Reports of runs: what happened inside of a differentiated loop, as one page that needs nothing else."""
