"""What is a user's own and cannot be in a file: ops made with ``us.op``, functions with a rule of their own.

A file has the name, and a digest of the definition. Who loads it must have defined the same under the same name: it is
looked up, never imported, so that loading runs nothing. The digest is taken twice, of the compiled functions and of
their source, because Python compiles to other instructions from version to version; one of the two has to agree.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import numpy as np

from unspool._graph import is_internal
from unspool._ops.op import REGISTRY, USERS, Op, load_all
from unspool.errors import DefinitionError

_PLAIN = (type(None), bool, int, float, complex, str, bytes)


class Digest(NamedTuple):
    """What identifies a definition: how it was compiled, and its source; empty where there is none to be had."""

    compiled: str
    source: str

    def agrees(self, other: Digest) -> bool:
        """Whether two definitions are the same, as far as can be told."""
        return self.compiled == other.compiled or (bool(self.source) and self.source == other.source)


def digest_of(functions: Iterable[Any]) -> Digest:
    """Return the digest of functions, with what they close over and their defaults."""
    compiled = hashlib.blake2b(f"{sys.implementation.cache_tag}".encode(), digest_size=12)
    source = hashlib.blake2b(digest_size=12)
    has_source = True
    for token, text in _tokens(list(functions)):
        compiled.update(token)
        if text is None:
            has_source = False
        else:
            source.update(text)
    return Digest(compiled.hexdigest(), source.hexdigest() if has_source else "")


def _tokens(waiting: list[Any]) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield what functions are made of, as bytes: compiled, and as it is written."""
    seen: set[int] = set()
    waiting.reverse()
    while waiting:
        part = waiting.pop()
        if isinstance(part, _PLAIN):
            both = f"{type(part).__name__} {part!r};".encode()
            yield both, both
            continue
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, FunctionType):
            if is_internal(part.__code__.co_filename):
                both = f"def {part.__qualname__};".encode()
                yield both, both
            else:
                yield _compiled(part.__code__), _source(part)
            cells = [_content(cell) for cell in part.__closure__ or ()]
            defaults = [*(part.__defaults__ or ()), *(part.__kwdefaults__ or {}).values()]
            waiting += reversed([*cells, *defaults])
        elif isinstance(part, functools.partial):
            waiting += reversed([part.func, *part.args, *part.keywords.values()])
        elif isinstance(part, tuple | list):
            waiting += reversed(part)
        elif isinstance(part, np.ndarray):
            both = f"{part.dtype} {part.shape} ".encode() + part.tobytes()
            yield both, both
        else:
            name = getattr(part, "__qualname__", None) or type(part).__qualname__
            both = f"{name};".encode()
            yield both, both


def _compiled(code: CodeType) -> bytes:
    found, waiting = [], [code]
    while waiting:
        code = waiting.pop()
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        plain = [_text(constant) for constant in code.co_consts if not isinstance(constant, CodeType)]
        found.append(repr((code.co_code, plain, code.co_names, code.co_varnames, code.co_freevars)))
    return "\n".join(found).encode()


def _text(constant: Any) -> str:
    """Return a constant as text; the order of a set is another in each process."""
    return repr(sorted(map(repr, constant))) if isinstance(constant, frozenset) else repr(constant)


def _source(function: FunctionType) -> bytes | None:
    try:
        return inspect.cleandoc(inspect.getsource(function)).encode()
    except (OSError, TypeError, SyntaxError):
        return None


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


# --- ops -------------------------------------------------------------------------------------------------------------


def digest_of_op(op: Op) -> Digest | None:
    """Return the digest of an op of a user's; None for one of ours."""
    if not op.name.startswith(USERS):
        return None
    return digest_of([op.infer, op.kernel, op.vjp, op.jvp, op.needs, op.multi, tuple(op.params.items())])


def find_op(name: str, digest: Digest | None, unregistered: Callable[[], dict[str, Op]]) -> Op:
    """Return the op of a name, if it is there and is the one that was saved."""
    found = REGISTRY.get(name)
    if found is None and not name.startswith(USERS):
        found = unregistered().get(name)
    if found is None and not name.startswith(USERS):
        load_all()
        found = REGISTRY.get(name)
    if found is None:
        shown = name.removeprefix(USERS)
        raise DefinitionError(
            f"the file needs the op {shown!r}, which is not defined here: define it with us.op({shown!r}, ...) first"
            if name.startswith(USERS)
            else f"the file needs the op {name!r}, which this version of unspool does not have"
        )
    if digest is not None:
        own = digest_of_op(found)
        if own is None or not own.agrees(digest):
            raise DefinitionError(
                f"the op {name.removeprefix(USERS)!r} is defined otherwise here than where the file was saved; "
                "values and gradients would not be those of the saved recipe"
            )
    return found
