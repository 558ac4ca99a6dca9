"""Many independent loops, here or on a pool of workers (`unspool.ensemble`), sums over slices (`unspool.sliced`)."""
