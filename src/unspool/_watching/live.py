"""What lives on a terminal and leaves nothing there: rich's, which would be drawn once more before it goes."""

from __future__ import annotations

from typing import Any

from rich.live import Live


class TransientLive(Live):
    """A display that is not drawn any more when it stops; one that stops at once is never drawn.

    Drawing it for the first time takes as long as some ten thousand steps of a small loop.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(transient=True, **options)

    def refresh(self) -> None:
        """Draw it, while it lives."""
        if self.is_started:
            super().refresh()
