"""The linear-algebra family: decompositions, solvers and functions of matrices, whose derivatives are right or refuse.

`gauge` has the tolerances, `gaps` and `division` the quotients by differences of values that check before they divide.
`svd` (with `truncated` and `null_spaces`), `eigh`, `eig` and `qr` are the decompositions with something left open,
`cholesky`, `lu` and `polar` those without. `solving`, `least_squares` and `determinants` rest on `factoring` and
`triangular`; `functions` are powers, roots, exponentials and logarithms, on `schur` and `sylvester`. `matrices` has
what all of them need; `hermitian` says which Hermitian matrix is meant by an array of numbers, `finite` what becomes of
matrices that are not finite.
"""
