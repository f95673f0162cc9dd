"""
Where a command's words go.

People read stdout and find the answer in its last line. With ``--json`` stdout holds one
document and nothing else, and the words for people go to stderr.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from json import dumps
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.text import Text

STYLES = {
    "SUCCEEDED": "green",
    "RUNNING": "green",
    "READY": "green",
    "ok": "green",
    "DRAINING": "yellow",
    "PARKED": "yellow",
    "warn": "yellow",
    "FAILED": "red",
    "CANCELLED": "red",
    "fail": "red",
}


class Terminal:
    """Speaks to one person or to one script, never to both on one stream."""

    def __init__(self, *, json: bool = False) -> None:
        from rich.console import Console

        self.json = json
        # One console for words and for the line that changes in place, or they overwrite
        # each other. Plain where nobody looks, or where NO_COLOR asks for it.
        self._people = Console(
            file=sys.stderr if json else sys.stdout, highlight=False, markup=False, emoji=False
        )

    def line(self, text: str = "", *, indent: int = 0) -> None:
        """Say one line of the result; a long one goes on at *indent* columns."""
        parts = textwrap.wrap(
            text,
            self._people.width,
            subsequent_indent=" " * indent,
            break_long_words=False,  # a name or an address stays whole, to be copied
            break_on_hyphens=False,
        )
        for part in parts or [""]:
            self._people.print(_styled(part), soft_wrap=True)

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Say a table; the last column folds where the terminal is too narrow."""
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        for title in head[:-1]:
            table.add_column(title, no_wrap=True, overflow="fold")  # names are there to be copied
        table.add_column(head[-1], overflow="fold")
        for row in rows:
            table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
        self._people.print(table)

    def warn(self, text: str) -> None:
        """Say what the person should know although the command goes on."""
        trouble(f"warning: {text}")

    def answer(self, text: str, document: Any) -> None:
        """End with the answer: *text* for people, *document* for scripts."""
        if self.json:
            click.echo(dumps(document, ensure_ascii=False, allow_nan=False))
        else:
            # Never wrapped: scripts take the last line as a whole.
            self._people.print(_styled(text), soft_wrap=True)

    @contextmanager
    def working(self, text: str) -> Iterator[Callable[[str], None]]:
        """Show a line that changes in place while something is under way, on a terminal only."""
        from rich.markup import escape

        if not self._people.is_terminal or self._people.no_color:
            yield lambda _text: None
            return
        # Escaped because a status, unlike the console, always reads markup.
        with self._people.status(escape(text)) as status:
            yield lambda text: status.update(escape(text))


def trouble(text: str) -> None:
    """Say one line on stderr."""
    click.echo(text, err=True)


def _styled(text: str) -> Text:
    from rich.text import Text

    styled = Text(text)
    for word, style in STYLES.items():
        if word.isupper():
            styled.highlight_words([word], style=style)
    return styled
