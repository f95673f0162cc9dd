"""The plots of ``simulate`` and ``plan``; the suffix of the file decides what is written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reprieve_cli.economics.forecast import Forecast, Spread
from reprieve_cli.economics.study import Estimate, Pair, Row, Scenario
from reprieve_cli.errors import BadInputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OURS, PEER, INK, FAINT = "#0b6e4f", "#5c6b7a", "#22303c", "#d5dce3"
UP, DOWN = "#9fc5b3", "#f3f1ec"
PLANNED = 16  # ways drawn
SUFFIXES = (".png", ".svg", ".pdf")
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#edf0f3",
    "axes.axisbelow": True,
    "xtick.color": PEER,
    "ytick.color": PEER,
    "text.color": INK,
    "svg.fonttype": "none",
    "svg.hashsalt": "reprieve",
}


def checked(path: Path) -> Path:
    """Return *path*; raise ``BadInputError`` before anything is computed for it."""
    if path.suffix.lower() not in SUFFIXES:
        raise BadInputError(f"--plot {path}: the name must end in {', '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise BadInputError(f"--plot {path}: there is no folder {path.parent}")
    return path


def study(path: Path, scenario: Scenario, rows: Sequence[Row], pairs: Sequence[Pair]) -> None:
    """Draw cost against time, the paired savings, and when the pools were up."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(12.5, 8.2), layout="constrained")
        grid = figure.add_gridspec(2, 2, height_ratios=(2.1, 1), width_ratios=(1.25, 1))
        _cost_and_time(figure.add_subplot(grid[0, 0]), rows)
        _savings(figure.add_subplot(grid[0, 1]), rows, pairs)
        _availability(figure.add_subplot(grid[1, :]), scenario)
        figure.suptitle(
            f"{scenario.name}: {scenario.job.work_hours:g} h of work, {scenario.starts} starts",
            x=0.01,
            ha="left",
            fontsize=13,
        )
        save(figure, path)


def save(figure: Figure, path: Path) -> None:
    """Write the file; the same picture gives the same bytes."""
    kind = path.suffix.lower()[1:]
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    figure.savefig(path, dpi=144, metadata=metadata)


def _cost_and_time(axes: Axes, rows: Sequence[Row]) -> None:
    """Draw what finished every time, on-demand left out: it is off the scale by design."""
    shown = [row for row in rows if row.cost_index and row.makespan_hours and _is_spot(row)]
    for row in shown:
        _point(axes, row)
    axes.set_title("Cheaper is lower, faster is further left")
    axes.set_xlabel("hours from submission to the end (mean, 95 %)")
    axes.set_ylabel("dollars per useful GPU-hour")
    axes.margins(x=0.05, y=0.12)
    _label(axes, shown)
    left_out = [row for row in rows if row not in shown]
    if left_out:
        axes.text(
            0.995,
            0.995,
            "not drawn:\n" + "\n".join(_why_not_drawn(row) for row in left_out),
            transform=axes.transAxes,
            ha="right",
            va="top",
            fontsize=8,
            color=PEER,
        )


def _is_spot(row: Row) -> bool:
    return row.policy.name != "on-demand"


def _why_not_drawn(row: Row) -> str:
    if row.usd_per_useful_gpu_hour is not None and row.finish_rate == 1:
        return f"{row.policy.label}: ${row.usd_per_useful_gpu_hour:.2f}"
    return f"{row.policy.label}: {row.finish_rate:.0%} finished"


def _point(axes: Axes, row: Row) -> None:
    if not (row.cost_index and row.makespan_hours and row.usd_per_useful_gpu_hour):
        return
    scale = row.usd_per_useful_gpu_hour / row.cost_index.mean
    color = OURS if row.policy.ours else PEER
    x, y = row.makespan_hours.mean, row.usd_per_useful_gpu_hour
    axes.errorbar(
        x,
        y,
        xerr=row.makespan_hours.starts,
        yerr=row.cost_index.starts * scale,
        fmt="o",
        ms=9 if row.policy.ours else 6,
        color=color,
        elinewidth=1.2,
        capsize=0,
        zorder=3,
    )


def _label(axes: Axes, rows: Sequence[Row]) -> None:
    """Put the names to the right, far enough apart to be read, each led to its point."""
    points = sorted(
        (
            (row.usd_per_useful_gpu_hour, row.makespan_hours.mean, row)
            for row in rows
            if row.usd_per_useful_gpu_hour and row.makespan_hours
        ),
        key=lambda point: point[0],
    )
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    at = right + 0.02 * (right - left)
    axes.set_xlim(left, right + 0.9 * (right - left))
    place = bottom
    for y, x, row in points:
        place = max(y, place + 0.055 * (top - bottom))
        color = OURS if row.policy.ours else PEER
        axes.annotate(
            row.policy.label,
            (x, y),
            xytext=(at, place),
            textcoords="data",
            color=color,
            va="center",
            fontweight="bold" if row.policy.ours else "normal",
            fontsize=9,
            arrowprops={"arrowstyle": "-", "color": FAINT, "lw": 0.8, "shrinkB": 4},
        )


def _savings(axes: Axes, rows: Sequence[Row], pairs: Sequence[Pair]) -> None:
    labels = {row.policy.name: row.policy.label for row in rows}
    drawn = [pair for pair in pairs if pair.peer != "on-demand"]
    axes.axvline(0, color=INK, lw=0.9)
    for place, pair in enumerate(reversed(drawn)):
        _bar(axes, place + 0.14, pair.cost, OURS)
        _bar(axes, place - 0.14, pair.makespan, "#c98a1b")
    axes.set_yticks(range(len(drawn)), [labels[pair.peer] for pair in reversed(drawn)])
    axes.tick_params(axis="y", length=0)
    axes.set_title("Reprieve saves, paired by start")
    axes.set_xlabel("% of the other's (95 %: thick over starts, thin over blocks)")
    if drawn:
        axes.plot([], [], "o", color=OURS, label="dollars")
        axes.plot([], [], "o", color="#c98a1b", label="time")
        axes.legend(frameon=False, loc="best", fontsize=9)
    else:
        axes.text(0.5, 0.5, "nothing to pair", transform=axes.transAxes, ha="center")


def _bar(axes: Axes, y: float, value: Estimate, color: str) -> None:
    mean = 100 * value.mean
    if value.blocks is not None:
        wide = 100 * value.blocks
        axes.plot([mean - wide, mean + wide], [y, y], color=color, lw=1, alpha=0.8)
    axes.plot([mean - 100 * value.starts, mean + 100 * value.starts], [y, y], color=color, lw=3.5)
    axes.plot(mean, y, "o", color=color, ms=6)


def _availability(axes: Axes, scenario: Scenario) -> None:
    """Draw each slot as a strip that is filled while capacity was there."""
    strips = [
        (pool.name if index == 0 else "", slot)
        for pool in scenario.trace.pools
        for index, slot in enumerate(pool.slots)
    ]
    for place, (_, slot) in enumerate(strips):
        spans = [(start / 3600, (end - start) / 3600) for start, end in slot]
        axes.broken_barh([(0, scenario.trace.seconds / 3600)], (place, 0.8), facecolors=DOWN, lw=0)
        axes.broken_barh(spans, (place, 0.8), facecolors=UP, lw=0)
    names = [(place + 0.4, name) for place, (name, _) in enumerate(strips) if name]
    axes.set_yticks([place for place, _ in names], [name for _, name in names])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False)
    axes.invert_yaxis()
    axes.margins(x=0.005)
    axes.set_title("When capacity was there")
    axes.set_xlabel("hours into the trace")


def plan(path: Path, found: Forecast) -> None:
    """Draw cost and end of each way, as the middle 90 % with the median."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    ways = [option for option in found.spot if option.usd and option.hours][:PLANNED]
    ways += [found.on_demand] if found.on_demand else []
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11.5, 1.8 + 0.42 * max(len(ways), 1)), layout="constrained")
        cost, end = figure.subplots(1, 2, sharey=True)
        for place, option in enumerate(reversed(ways)):
            color = OURS if option.spot else PEER
            _range(cost, place, option.usd, color)
            _range(end, place, option.hours, color)
        names = [option.name + ("" if option.spot else " on demand") for option in ways]
        cost.set_yticks(range(len(ways)), list(reversed(names)))
        cost.tick_params(axis="y", length=0)
        end.tick_params(axis="y", length=0)
        cost.set_title("What it costs")
        cost.set_xlabel("dollars (median, middle 90 %)")
        cost.set_xlim(left=0)
        end.set_title("When it ends")
        end.set_xlabel("hours after submission (median, middle 90 %)")
        if found.job.deadline_hours:
            end.axvline(found.job.deadline_hours, color="#b3382c", lw=1.2)
            end.annotate(
                "due",
                (found.job.deadline_hours, 1),
                xycoords=("data", "axes fraction"),
                xytext=(4, -10),
                textcoords="offset points",
                color="#b3382c",
            )
        figure.suptitle(
            f"{found.job.name}: {found.job.work_hours:g} h of work", x=0.01, ha="left", fontsize=13
        )
        save(figure, path)


def _range(axes: Axes, place: float, value: Spread | None, color: str) -> None:
    if value:
        axes.plot([value.p5, value.p95], [place, place], color=color, lw=5, alpha=0.35)
        axes.plot(value.p50, place, "o", color=color, ms=6.5)
