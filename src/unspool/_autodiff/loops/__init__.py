"""`us.iterate`: loops as one node, their derivatives, and how they keep few states."""
