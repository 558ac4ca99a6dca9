"""What the pages for those who come from other libraries show of these runs, with the results that it is shown with.

Our side of the pages runs in ``tests/test_docs.py``, theirs here: it is in blocks that are marked ``pycon``.
"""

from __future__ import annotations

import doctest
import warnings
from collections.abc import Iterator

import pytest

from tests.test_docs import FENCE, OPTIONS, ROOT

pytestmark = pytest.mark.ecosystem


@pytest.fixture(autouse=True)
def settings_of_jax() -> Iterator[None]:
    """Leave JAX as it was: its page asks for double precision."""
    jax = pytest.importorskip("jax")
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.mark.parametrize("library", ["autograd", "jax", "pytorch"])
def test_their_side_of_a_page_runs(library: str) -> None:
    pytest.importorskip({"pytorch": "torch"}.get(library, library))
    page = f"docs/from-{library}.md"
    text = (ROOT / page).read_text(encoding="utf-8")
    names: dict[str, object] = {}
    report: list[str] = []
    for block in FENCE.finditer(text):
        if block[1] == "pycon":
            example = doctest.DocTestParser().get_doctest(block[2], {}, page, page, text.count("\n", 0, block.start(2)))
            example.globs = names
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # theirs
                doctest.DocTestRunner(optionflags=OPTIONS).run(example, out=report.append, clear_globs=False)
    assert names, "the page has no block of theirs"
    assert not report, "".join(report)


@pytest.mark.parametrize("library", ["autograd", "jax", "pytorch"])
def test_every_block_of_theirs_is_followed_by_one_of_ours(library: str) -> None:
    languages = [block[1] for block in FENCE.finditer((ROOT / f"docs/from-{library}.md").read_text(encoding="utf-8"))]
    assert "".join("t" if language == "pycon" else "o" for language in languages).count("tt") == 0
