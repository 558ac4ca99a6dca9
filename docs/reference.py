"""What stands on which page of the reference: every public name once, with its docstring.

The pages are not stored. ``make docs`` asks this module for them (`pages`) and mkdocstrings fills in signatures and
docstrings. What the source has no ``def`` or ``class`` for, such as the distributions of ``us.stats``, is written here
from the docstring that it has when the package runs. A new public name is on a page without anybody's doing.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import unspool

# Pages of the names directly under ``us``, by the modules that hold them: the first prefix that fits has the name.
TOPICS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "tensors": (
        "Tensors",
        "Leaves, what a tensor can do, and asking for values.",
        ("", "_ops.leaf", "_ops.data", "_tensor", "_dims", "_engine.evaluate"),
    ),
    "derivatives": (
        "Derivatives",
        "Gradients, Jacobians and Hessians, and rules of your own.",
        (
            "_autodiff.check.",
            "_autodiff.sweeps.cotangents",
            "_autodiff.rules.custom",
            "_autodiff.rules.user_op",
            "_autodiff.functional",
            "_batching.jacobians",
        ),
    ),
    "loops": (
        "Loops, memory and batches",
        "Steps that are traced once, loops in one call, memory budgets, and many members at once.",
        (
            "_traced",
            "_autodiff.loops.iterate",
            "_autodiff.loops.checkpointed",
            "_autodiff.solvers.implicit",
            "_autodiff.solvers.fixed_point",
            "_batching",
            "_ops.hints",
            "_engine.budget",
            "_engine.public_engine",
            "_inspect.memory",
        ),
    ),
    "inspection": (
        "Looking inside",
        "Summaries of graphs, what the engine did, the tape, and checks of derivatives.",
        ("_inspect", "_engine", "_autodiff", "_namespace_info"),
    ),
    "elementwise": ("Elementwise operations", "One element at a time, with broadcasting.", ("_ops.elementwise",)),
    "reductions": (
        "Reductions and statistics",
        "Sums, extrema, moments, quantiles, histograms and cumulative operations.",
        (
            "_ops.reduction",
            "_ops.composed.nan_reductions",
            "_ops.composed.quantiles",
            "_ops.composed.moments",
            "_ops.composed.histograms",
        ),
    ),
    "contractions": (
        "Products and contractions",
        "Products of vectors and matrices, `einsum`.",
        ("_ops.contraction", "_ops.composed.vector_products"),
    ),
    "layout": (
        "Layout",
        "Shapes and axes, joining and splitting.",
        ("_ops.layout", "_ops.broadcasting", "_ops.composed.arranging"),
    ),
    "indexing": (
        "Indexing, sorting and sets",
        "Choosing elements, functional updates, order, and sets.",
        (
            "_ops.indexing",
            "_ops.composed.choices",
            "_ops.composed.grids",
            "_ops.composed.index_tricks",
            "_ops.composed.sets",
        ),
    ),
    "creation": (
        "Creation",
        "Tensors of known contents, and windows.",
        ("_ops.creation", "_ops.composed.windows"),
    ),
    "calculus": (
        "Calculus, polynomials and signals",
        "Differences, integrals, interpolation, polynomials, convolutions and bits.",
        ("_ops",),
    ),
    "dtypes": ("Data types and constants", "What is known without a value.", ("_questions", "numpy", "")),
}

# What is no function and no class of ours.
DATA_TYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64", "complex64", "complex128"),
)

# Classes that are passed on; their methods are for `us.iterate` to call.
STRATEGIES = ("Checkpointed", "Implicit", "Unrolled")

# How docstrings name a page.
PAGE = re.compile(r"`?docs/([\w-]+)\.md`?")


@dataclass
class Page:
    """A page of the reference: where it is, what it is about, and the public names on it by their dotted path."""

    path: str
    title: str
    intro: str
    names: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        """Return the source of the page, with directives for mkdocstrings."""
        return "\n\n".join([f"# {self.title}", self.intro, *(_entry(name) for name in self.names)]) + "\n"


def pages() -> list[Page]:
    """Return all pages: topics of ``us`` first, then the other namespaces by name."""
    topics = {key: Page(f"reference/{key}.md", title, intro) for key, (title, intro, _) in TOPICS.items()}
    for name in unspool.__all__:
        if not isinstance(getattr(unspool, name), ModuleType):
            topics[_topic(name)].names.append(name)
    return [*topics.values(), *(_namespace(path) for path in namespaces())]


def public_names() -> list[str]:
    """Return every public name by its dotted path under ``us``, namespaces left out."""
    own = [name for name in unspool.__all__ if not isinstance(getattr(unspool, name), ModuleType)]
    return own + [f"{path}.{name}" for path in namespaces() for name in _members(_find(path))]


def namespaces(root: str = "") -> Iterator[str]:
    """Yield the paths of all public namespaces under one of them."""
    module = _find(root)
    for name in getattr(module, "__all__", []):
        path = f"{root}.{name}".lstrip(".")
        if isinstance(getattr(module, name), ModuleType):
            if _members(_find(path)):
                yield path
            yield from namespaces(path)


def _namespace(path: str) -> Page:
    module = _find(path)
    intro = "\n\n".join(_docstring(inspect.getdoc(module) or ""))
    return Page(
        f"reference/{path.replace('.', '-')}.md", f"us.{path}", intro, [f"{path}.{name}" for name in _members(module)]
    )


def _members(module: ModuleType) -> list[str]:
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    return [
        name
        for name in names
        if not isinstance(found := getattr(module, name), ModuleType)
        and (hasattr(module, "__all__") or getattr(found, "__module__", None) == module.__name__)
    ]


def _topic(name: str) -> str:
    """Return the page of a name that is directly under ``us``."""
    found = getattr(unspool, name)
    if found is unspool.Tensor:
        return "tensors"
    home = (getattr(found, "__module__", None) or "").removeprefix("unspool").lstrip(".")
    if not home or home == "numpy":
        return "dtypes"
    fitting = [
        (len(prefix), key)
        for key, (_, _, prefixes) in TOPICS.items()
        for prefix in prefixes
        if prefix and f"{home}.".startswith(prefix)
    ]
    return max(fitting)[1] if fitting else "inspection"


def _find(path: str) -> Any:
    return importlib.import_module(f"unspool.{path}" if path else "unspool")


# --- an entry -------------------------------------------------------------------------------------------------------


def _entry(path: str) -> str:
    home, _, name = path.rpartition(".")
    found = getattr(_find(home), name)
    own = getattr(found, "__name__", None)
    if (isinstance(found, type) and found.__module__.startswith("unspool")) or (
        inspect.isfunction(found) and own == name
    ):
        return _directive(path, found)
    heading = f'## `us.{path}` {{ #unspool.{path} data-toc-label="{name}" }}'
    if inspect.isfunction(found) and own in getattr(_find(home), "__all__", []):
        sibling = f"{home}.{own}".lstrip(".")
        return f"{heading}\n\nAnother name of [`us.{sibling}`][unspool.{sibling}]."
    return "\n\n".join([heading, *_told(name, found)])


def _directive(path: str, found: Any) -> str:
    """Return what mkdocstrings replaces by signature and docstring."""
    options = f"    options:\n      heading: us.{path}\n      toc_label: {path.rpartition('.')[2]}"
    if path in STRATEGIES:
        options += "\n      members: false\n      inherited_members: false"
    if not found.__module__.startswith(f"unspool.{path}"):
        return f"::: unspool.{path}\n{options}"
    # A function that has the name of its module, which would be found first.
    return f"[](){{ #unspool.{path} }}\n\n::: {found.__module__}.{found.__name__}\n{options}"


def _told(name: str, found: Any) -> list[str]:
    """Return paragraphs about what has no ``def`` of its own."""
    if getattr(found, "__module__", None) == "numpy":
        return [f"`numpy.{found.__name__}`."]
    if name in DATA_TYPES:
        return [f"The data type `{found}`."]
    if found is None:
        return ["`None`: indexing with it adds an axis of size 1."]
    if isinstance(found, float):
        return [f"The number {found!r}."]
    if hasattr(found, "itemsize"):
        return [f"Another name of the data type `{found}`."]
    return list(_docstring(inspect.getdoc(found) or ""))


def _docstring(text: str) -> Iterator[str]:
    """Yield the blocks of a NumPy-style docstring as Markdown: paragraphs as they are, examples fenced."""
    text = re.sub(r"^(\w[\w ]*)\n-+$", r"**\1**\n", text, flags=re.MULTILINE)
    for block in re.split(r"\n\s*\n", text.strip()):
        if block.lstrip().startswith(">>>"):
            yield f"```pycon\n{block}\n```"
        else:
            yield PAGE.sub(r"[\1](../\1.md)", block.replace("``", "`"))
