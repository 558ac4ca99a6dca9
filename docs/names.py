"""Writes ``docs/names.md``: every name of NumPy, of ``jax.numpy``, and of SciPy as far as JAX has it, beside ours.

``names.json`` holds their names, so none of these packages has to be there; what ours are is asked of the package. A
name that is not ours has its reason in `REASONS`. ``make names-page`` runs this, and a test holds the page against it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import unspool

HERE = Path(__file__).resolve().parent
PAGE = HERE / "names.md"

# In which of our namespaces the names of theirs are looked for.
HOMES: dict[str, tuple[str, ...]] = {
    "numpy": ("",),
    "numpy.linalg": ("linalg",),
    "numpy.fft": ("fft",),
    "scipy.special": ("special",),
    "scipy.linalg": ("linalg",),
    "scipy.fft": ("fft",),
    "scipy.signal": ("signal",),
    "scipy.stats": ("stats",),
    "scipy.integrate": ("",),
    "scipy.sparse.linalg": ("linalg",),
}

# What has another name here, or lives elsewhere than its namesakes.
OTHER_NAMES: dict[str, str] = {
    "numpy.asanyarray": "asarray",
    "numpy.ascontiguousarray": "asarray",
    "numpy.asfortranarray": "asarray",
    "numpy.ndarray": "Tensor",
    "numpy.putmask": "where",
    "numpy.copyto": "where",
    "numpy.row_stack": "vstack",
}

# Why a name is not ours.
REASONS: dict[str, str] = {
    "there is no such data type: tensors have those of the array API standard, bool to complex128": """
        bfloat16 bytes_ clongdouble complex256 datetime64 float128 float16 float4_e2m1fn float6_e2m3fn float6_e3m2fn
        float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz
        float8_e8m0fnu half int1 int2 int4 longdouble object_ str_ timedelta64 uint1 uint2 uint4 void character
        flexible record recarray""",
    "named after a type of C, whose size depends on the machine; say how many bits: `us.int64`": """
        byte intc intp long longlong short ubyte uintc uintp ulong ulonglong ushort""",
    "an older name of `us.complex128` or `us.float64`, which NumPy has dropped": "complex_ float_",
    "about dates": "busday_count busday_offset busdaycalendar datetime_as_string datetime_data is_busday isnat",
    "about data types by letters or of scalars; `us.result_type`, `us.isdtype`": """
        ScalarType common_type min_scalar_type mintypecode sctypeDict typecodes typename""",
    "Python's own `True` and `False` do": "False_ True_",
    "text is made of values: NumPy's function takes a tensor, or its value `t.eval()`": """
        array2string array_repr array_str base_repr binary_repr format_float_positional format_float_scientific""",
    "a setting of NumPy's printing, which holds for values": "get_printoptions printoptions set_printoptions",
    "reads data: `us.tensor(np.f(...))`": """
        frombuffer fromfile fromiter fromregex fromstring genfromtxt loadtxt memmap""",
    "writes values: `np.f(..., t.eval())`": "savetxt savez savez_compressed",
    "floating-point warnings are off while values are computed; `us.debug.check_nan` finds where NaN arises": """
        errstate geterr geterrcall seterr seterrcall""",
    "calls a Python function once for each element; write it with operations on whole tensors": "frompyfunc vectorize",
    "iterates over memory; tensors are recipes, and `for row in t` goes along the first axis": """
        broadcast flatiter ndenumerate ndindex nditer nested_iters""",
    "about where an array lies in memory, which a tensor does not have": """
        isfortran may_share_memory require shares_memory""",
    "matrices are tensors with two axes": "asmatrix bmat matrix",
    "polynomials are their coefficients: `us.polyval(p, x)`": "poly1d",
    "checks values while a recipe is written; `us.debug.check_nan` does when they are computed": "asarray_chkfinite",
    "NumPy's function answers for tensors, too": "iterable",
    "errors have classes under `us.errors`": "LinAlgError",
    "`us.linalg.gmres` solves the same systems": "bicgstab",
    "numbers that follow from an integer: `us.constant(scipy.special.f(n))`": "bernoulli",
    "calls a Python function on a triangle; `us.linalg.eig`, or `expm`, `logm`, `sqrtm`, `cosm`, … by name": "funm",
    "the first half of `us.linalg.schur`, which has a derivative": "hessenberg",
    '`us.linalg.schur(a, output="complex")` gives it': "rsf2csf",
    "a class; its density is the mean of `us.stats.norm.pdf(x, data, width)` over the data": "gaussian_kde",
    "a matrix of constants: `us.constant(scipy.linalg.f(n))`": "dft hadamard helmert invhilbert invpascal pascal",
    "about NumPy itself": """
        ComplexWarning get_include getbufsize info little_endian setbufsize show_config show_runtime test ufunc""",
}

# Namespaces of SciPy of which nothing is here, and why.
OUTSIDE: dict[str, str] = {
    "scipy.interpolate": "splines and grids of more than one dimension; `us.interp` has one",
    "scipy.ndimage": "images",
    "scipy.optimize": "`scipy.optimize.minimize` takes `us.value_and_grad(f)` with `jac=True`",
    "scipy.cluster.vq": "an algorithm, to be written as a loop",
    "scipy.spatial.transform": "classes of rotations",
}


class Row(NamedTuple):
    """A name, who has it, our name for it if there is one, and else why there is none."""

    name: str
    theirs: tuple[str, ...]
    ours: str | None
    reason: str | None


def rows(namespace: str) -> Iterator[Row]:
    """Yield all names of a namespace of theirs."""
    libraries = stored()["namespaces"][namespace]
    reasons = {name: reason for reason, names in REASONS.items() for name in names.split()}
    for name in sorted({name for names in libraries.values() for name in names}, key=lambda n: (n.lower(), n)):
        theirs = tuple(library for library, names in libraries.items() if name in names)
        ours = counterpart(namespace, name)
        yield Row(name, theirs, ours, None if ours else OUTSIDE.get(namespace, reasons.get(name)))


def counterpart(namespace: str, name: str) -> str | None:
    """Return our name for one of theirs, ``None`` if there is none."""
    other = OTHER_NAMES.get(f"{namespace}.{name}")
    candidates = [f"{home}.{name}".lstrip(".") for home in HOMES.get(namespace, ())]
    for candidate in [*candidates, *([other] if other else [])]:
        if exists(candidate):
            return candidate
    return None


def exists(path: str) -> bool:
    """Whether a dotted name is public here."""
    found: object = unspool
    for part in path.split("."):
        if part not in getattr(found, "__all__", dir(found)):
            return False
        found = getattr(found, part)
    return True


def missing(namespace: str) -> list[str]:
    """Return the names that are neither ours nor refused."""
    return [row.name for row in rows(namespace) if row.ours is None and row.reason is None]


def stored() -> dict[str, dict[str, dict[str, list[str]]]]:
    """Return the names of the libraries as they are stored."""
    return json.loads((HERE / "names.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


# --- the page --------------------------------------------------------------------------------------------------------

HEAD = """# Names

Every name of NumPy {numpy} and of `jax.numpy` in JAX {jax}, and every name of SciPy {scipy} that `jax.scipy` has,
beside ours. `us.f` stands for the function of the same name, and `np.f(t)` calls it for a tensor. Where there is none,
the table says why. `docs/names.py` writes this page.

| namespace | names | ours |
|---|---|---|
"""


def page() -> str:
    """Return the page."""
    names = stored()
    parts = [HEAD.format(**names["versions"])]
    tables = {namespace: list(rows(namespace)) for namespace in names["namespaces"]}
    for namespace, found in tables.items():
        ours = sum(row.ours is not None for row in found)
        parts.append(f"| [`{namespace}`](#{namespace.replace('.', '')}) | {len(found)} | {ours} |\n")
    for namespace, found in tables.items():
        parts.append(f"\n## {namespace}\n\n" + table(found))
    return "".join(parts)


def table(found: list[Row]) -> str:
    """Return a table of names."""
    libraries = {"numpy": "NumPy", "jax": "JAX", "shared": "SciPy and JAX"}
    lines = ["| name | in | here |", "|---|---|---|"]
    for row in found:
        where = " and ".join(libraries[library] for library in row.theirs)
        here = f"`us.{row.ours}`" if row.ours else row.reason or "not yet"
        lines.append(f"| `{row.name}` | {where} | {here} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
