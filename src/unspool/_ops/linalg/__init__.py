"""Linear algebra: decompositions, solvers and functions of matrices, with derivatives that are right or refuse."""
