"""Functions with a rule of a user's, which are found by name: as `definitions` does it for ops."""

from __future__ import annotations

from typing import Any

from unspool._autodiff.rules.custom import FUNCTIONS, custom_jvp, custom_vjp
from unspool._saving.definitions import Digest, digest_of
from unspool.errors import DefinitionError, SaveError


def name_of_function(function: Any) -> str:
    """Return the name that a function with a rule is found by."""
    found = [name for name, known in FUNCTIONS.items() if known is function]
    if not found:
        raise SaveError(
            f"{function.name} has a rule of its own and no name that it could be found by where the file is loaded: it "
            "has none, or another function was defined under its name since"
        )
    return found[0]


def digest_of_function(function: Any) -> Digest:
    """Return the digest of a function with a rule."""
    rules = [function.fwd, function.bwd] if isinstance(function, custom_vjp) else [function.rule]
    return digest_of([function.f, *rules, function.nondiff_argnums])


def find_function(name: str, digest: Digest) -> Any:
    """Return the function with a rule of a name, if it is there and is the one that was saved."""
    found = FUNCTIONS.get(name)
    if not isinstance(found, custom_vjp | custom_jvp):
        raise DefinitionError(
            f"the file needs the function {name}, which has a rule of its own and is not defined here: import its "
            "module first"
        )
    if not digest_of_function(found).agrees(digest):
        raise DefinitionError(
            f"the function {name} is defined otherwise here than where the file was saved; values and gradients would "
            "not be those of the saved recipe"
        )
    return found
