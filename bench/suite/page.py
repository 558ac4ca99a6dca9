"""Write ``docs/performance.md`` from the numbers of a run.

    python bench/suite/page.py                  from bench/results/suite.json, as the last run left it
    python bench/suite/page.py --json FILE      from another run
    python bench/suite/page.py --again          from docs/performance.json, after a change of words or of pictures

The run is copied to ``docs/performance.json``, the pictures are drawn into ``docs/images/performance``, and the page is
made from that file and from the words of ``notes.py``. So no number on the page is written by hand, and a test can make
it again.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from bench.suite import report, results
from bench.suite.lines import described
from bench.suite.notes import NOTES
from bench.suite.report import STATES, Amount, by_case, cells, fastest, markdown, ratio, times
from bench.suite.results import Measured, Results
from bench.suite.run import available
from bench.suite.workload import Row

ROOT = Path(__file__).resolve().parents[2]
LATEST = ROOT / "bench" / "results" / "suite.json"
PAGE, NUMBERS = ROOT / "docs" / "performance.md", ROOT / "docs" / "performance.json"
PICTURES = "images/performance"

WIDTH = 120


def page(found: Results) -> str:
    """Return the page of a run."""
    parts = [*_opening(found), *_glance(found), *_bars(found), *_losses(found), *_workloads(found), *_machine(found)]
    return "\n\n".join(parts) + "\n"


def _filled(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), WIDTH, break_long_words=False, break_on_hyphens=False)


def _entry(text: str) -> str:
    """Return an entry of a list."""
    return textwrap.indent(_filled(text), "  ").replace("  ", "- ", 1)


# --- the parts of the page --------------------------------------------------------------------------------------------


def _opening(found: Results) -> Iterator[str]:
    yield "<!-- Made by bench/suite/page.py from performance.json and bench/suite/notes.py. Edit those. -->"
    yield "# Performance"
    yield _filled(
        """Loops that people write: in unspool, in the libraries they would use instead, and by hand. Each is run
        forward, a value is read in every step, and the gradient is taken through the loop. All forms agree on value and
        gradient before one is timed. `make bench` measures them on your machine; [benchmarks](../bench/README.md) tells
        how, and how to read it. Every number on this page comes from the run that is described at its end."""
    )
    if found.errors:
        failed = "; ".join(f"{key}: {error}" for key, error in found.errors.items())
        yield _filled(f"Not measured: {failed}.")


def _glance(found: Results) -> Iterator[str]:
    """Yield the picture and the table of all ratios."""
    yield "## At a glance"
    yield f"![Ratios of all workloads, on a logarithmic axis]({PICTURES}/summary.png)"
    clock = "time by the wall" if found.options.clock == "wall" else "processor time"
    cores = "one core" if found.options.threads == 1 else f"{found.options.threads} cores"
    yield _filled(
        f"""Medians of {clock}, at {found.options.size} size on {cores}. A ratio is ours divided
        by theirs: below 1, unspool is faster or smaller. *Ours* is the fastest of our forms, the *best peer* the
        fastest that is right, the *limit* an adjoint written by hand in NumPy. *growth* and *live* are the memory of
        the same two forms: what the process grew by, and the peak of live bytes where both libraries tell."""
    )
    yield markdown(
        [
            (found.workloads[key].short(case), *report.summary_line(key, case, rows)[1:])
            for key, case, rows in _cases(found)
        ]
    )
    yield _filled(_score(found))


def _score(found: Results) -> str:
    pairs = list(_cases(found))
    beside = [number for _, _, rows in pairs if (number := ratio(fastest(rows, "ours"), fastest(rows, "peer")))]
    limits = [number for _, _, rows in pairs if (number := ratio(fastest(rows, "ours"), fastest(rows, "limit")))]
    told = [f"unspool is no slower than the best peer in {sum(n <= 1.0 for n in beside)} of {len(beside)} lines"]
    if limits:
        told.append(f"and takes {times(min(limits))} to {times(max(limits))} the time of the adjoint by hand")
    return ", ".join(told) + "."


def _cases(found: Results) -> Iterator[tuple[str, str, list[Row]]]:
    """Yield key, case and rows of every line of the table; of a curve only the end."""
    for key, workload in found.workloads.items():
        for case, rows in workload.cases().items():
            yield key, case, rows


def _bars(found: Results) -> Iterator[str]:
    """Yield what was asked for, and what came of it."""
    if not found.bars:
        return
    states = [verdict.state for verdict in found.bars]
    yield "## What was asked for"
    yield _filled(
        f"""The project holds itself to bars, at medium size on one core: {states.count("met")} are met,
        {states.count("missed")} missed, and {states.count("not shown")} not shown, for the reason given."""
    )
    yield markdown(
        [
            (
                verdict.workload,
                verdict.what,
                times(verdict.measured),
                times(verdict.most) if verdict.measured is not None else "–",
                f"**{verdict.state}**" if verdict.state == "missed" else verdict.state,
                verdict.numbers,
            )
            for verdict in found.bars
        ],
        ("workload", "what", "ours / theirs", "at most", "", "numbers"),
    )


def _losses(found: Results) -> Iterator[str]:
    """Yield where a peer is faster or smaller, with the reason."""
    losses: dict[str, list[str]] = {}
    for key, case, rows in _cases(found):
        told = _loss(rows)
        if told:
            losses.setdefault(key, []).append(f"{case}: {told}" if case else told)
    yield "## Where unspool loses, and why"
    if not losses:
        yield "In this run, nowhere: no peer was faster, or smaller, than our fastest form."
        return
    yield _filled("Each line has the best peer by time, where it is faster or smaller than our fastest form.")
    yield "\n".join(
        _entry(f"**{key} {found.workloads[key].title}.** {'. '.join(told)}. {NOTES[key].why}")
        for key, told in losses.items()
    )


def _loss(rows: Sequence[Row]) -> str:
    ours, peer = fastest(rows, "ours"), fastest(rows, "peer")
    if ours is None or peer is None:
        return ""
    words: dict[Amount, str] = {"seconds": "time", "resident": "growth", "live": "live bytes"}
    ratios = {word: ratio(ours, peer, amount) or 0.0 for amount, word in words.items()}
    told = [f"{times(number)} its {word}" for word, number in ratios.items() if number > 1.0]
    return f"{ours.form} beside {peer.form} takes {', '.join(told)}" if told else ""


def _workloads(found: Results) -> Iterator[str]:
    yield "## The workloads"
    yield _filled(
        """*time* is the median of the rounds, *to ours* that time divided by the one of our fastest form, *first call*
        has compiling in it. *live* is the peak of what was alive at once, *growth* what the process grew by, above what
        it had at rest after its first call."""
    )
    for workload in found.workloads.values():
        yield f"### {workload.heading}"
        if workload.key in NOTES:
            yield _filled(NOTES[workload.key].meaning)
        yield f"![{workload.key}: {workload.title}]({PICTURES}/{workload.key.lower()}.png)"
        yield _lines(workload) if workload.plot == "growth" else _details(workload)


def _details(workload: Measured) -> str:
    """Return what was measured of every form."""
    lines = []
    rows = [row for row in workload.rows if row.state != "missing"]
    for case, members in by_case(rows, workload.axis).items():
        ours = fastest(members, "ours")
        for row in members:
            time, _, to_ours, first, live, growth, steps = cells(row, ours)
            if row.state != "ok":
                time, note = STATES[row.state], row.note
                to_ours = first = live = growth = steps = "–"
            else:
                note = row.note
            name = report.name_of(row, members)
            lines.append((f"{case}: {name}" if case else name, time, to_ours, first, live, growth, steps, note))
    return markdown(lines, ("form", "time", "to ours", "first call", "live", "growth", "steps", ""))


def _lines(workload: Measured) -> str:
    """Return the straight lines through what every form took."""
    forms = dict.fromkeys((row.case, row.form) for row in workload.rows if row.state == "ok")
    lines = []
    for case, form in forms:
        rows = [row for row in workload.rows if (row.case, row.form) == (case, form)]
        fits = (described(rows, amount) or "–" for amount in ("seconds", "live", "resident"))
        lines.append((f"{case}: {form}", *fits))
    return markdown(lines, ("form", "time", "live", "growth"))


def _machine(found: Results) -> Iterator[str]:
    """Yield where and with what the numbers were measured."""
    about, versions = found.machine, found.versions
    yield "## Machine and versions"
    memory = f", {about['memory'] / 2**30:.0f} GiB" if "memory" in about else ""
    yield _filled(
        f"""{about["processor"]}, {about["cores"]} cores{memory}; {about["system"]}. {found.day}; the run took
        {found.seconds / 60:.0f} minutes, with a load of {found.load[0]:g} before and {found.load[-1]:g} after. On the
        core that the forms share, time by the wall was {report.busy(found.everything):.2f} × the processor time."""
    )
    yield markdown([tuple(versions.values())], tuple(versions))
    left_out = report.missing(found.everything)
    if left_out:
        yield _filled(left_out.capitalize() + ".")


# --- writing ----------------------------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    """Copy the numbers, draw the pictures, write the page."""
    parser = argparse.ArgumentParser(description="Write docs/performance.md from the numbers of a run.")
    parser.add_argument("--json", metavar="FILE", type=Path, default=LATEST, help=f"the run (default {LATEST})")
    parser.add_argument("--again", action="store_true", help=f"from the numbers that are published, {NUMBERS}")
    parser.add_argument("--output", metavar="FILE", type=Path, default=PAGE, help=f"the page (default {PAGE})")
    chosen = parser.parse_args(arguments)
    numbers = chosen.output.with_suffix(".json")
    found = results.read(numbers if chosen.again else chosen.json)
    lacking = [key for key in available() if key not in {*found.workloads, *found.errors}]
    if lacking:
        parser.error(f"{chosen.json} lacks {', '.join(lacking)}; a page is made from a run of all workloads")
    if not chosen.again:
        shutil.copyfile(chosen.json, numbers)
    from bench.suite import plots

    pictures = chosen.output.parent / PICTURES
    pictures.mkdir(parents=True, exist_ok=True)
    drawn = plots.draw(found.workloads, pictures)
    for picture in pictures.glob("*.png"):
        if drawn and picture not in drawn:  # of a workload that is no longer there
            picture.unlink()
    chosen.output.write_text(page(found), encoding="utf-8")
    print(chosen.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
