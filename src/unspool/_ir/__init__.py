"""Programs and loops: what a piece of recorded graph does, without nodes, ids and values."""
