"""A bar on stderr while a study runs; nothing where nobody looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from reprieve_cli.economics.policies import Policy


@contextmanager
def bar(total: int) -> Iterator[Callable[[Policy, int], None]]:
    """Yield what to call after each finished run."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} runs"),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as shown:
        task = shown.add_task("", total=total)

        def told(policy: Policy, _done: int) -> None:
            shown.update(task, advance=1, description=policy.label)

        yield told
