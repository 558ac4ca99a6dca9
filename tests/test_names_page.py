"""The page of names is what its script writes, and leaves out no name without a reason."""

from __future__ import annotations

import pytest

from docs import names

COMPLETE = list(names.stored()["namespaces"])


def test_the_page_is_what_its_script_writes() -> None:
    assert names.PAGE.read_text(encoding="utf-8") == names.page(), "make names-page writes it again"


@pytest.mark.parametrize("namespace", COMPLETE)
def test_every_name_is_ours_or_has_a_reason(namespace: str) -> None:
    assert not names.missing(namespace)


def test_no_reason_is_for_a_name_that_is_ours() -> None:
    refused = [name for group in names.REASONS.values() for name in group.split()]
    assert len(refused) == len(set(refused))
    assert not [name for name in refused if names.counterpart("numpy", name)]


def test_no_reason_is_for_a_name_that_nobody_has() -> None:
    known = {row.name for namespace in names.stored()["namespaces"] for row in names.rows(namespace)}
    assert not [name for group in names.REASONS.values() for name in group.split() if name not in known]


def test_another_name_is_given_only_where_ours_differs() -> None:
    for path in names.OTHER_NAMES:
        namespace, _, name = path.rpartition(".")
        assert not any(names.exists(f"{home}.{name}".lstrip(".")) for home in names.HOMES[namespace])


def test_a_name_that_is_not_ours_is_not_found() -> None:
    assert names.counterpart("numpy", "busday_count") is None
    assert names.counterpart("numpy", "ndarray") == "Tensor"
    assert names.counterpart("numpy.linalg", "svd") == "linalg.svd"
