"""`fixed_point`: the state that a function maps to itself, found by iteration and differentiated implicitly.

The search runs on arrays, from the plan of the traced function; user code is not run between steps. The result is a
tensor like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unspool._autodiff import trees
from unspool._autodiff.anderson import search
from unspool._autodiff.implicit import Application, Implicit, Route, place
from unspool._autodiff.iterate import Adjoint
from unspool.errors import ArgumentError
