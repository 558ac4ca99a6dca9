"""The command ``unspool``: which command was asked for, and what the shell is told of how it went.

Exit codes: 0 if all went well; 1 if the run failed (a check that does not hold, an error of a loop); 2 if what was
asked for cannot be done, so that the command has to be changed; 130 if it was stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from unspool import __version__
from unspool._cli.options import Parser, page_path
from unspool.errors import ArgumentError, BudgetError, UnspoolError

__all__ = ["main"]

FAILED, REFUSED, STOPPED = 1, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        What was typed after the name of the command; that of the process if not given.

    Examples
    --------
    >>> from unspool._cli.main import main
    >>> main(["--version"])  # doctest: +ELLIPSIS
    unspool ...
    0
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        chosen = _parser().parse_args(_with_demo_named(arguments))
        return int(chosen.run(chosen))
    except SystemExit as left:  # the parser has said what there is to say
        return left.code if isinstance(left.code, int) else FAILED
    except KeyboardInterrupt:
        return _complain("stopped", STOPPED)
    except (ArgumentError, BudgetError) as error:
        return _complain(error, REFUSED)
    except (UnspoolError, MemoryError) as error:
        return _complain(error, FAILED)


def _complain(error: object, code: int) -> int:
    # Some errors go on with a table; its place is in a program, not on a command line.
    lines = str(error).splitlines() or [type(error).__name__]
    print(f"unspool: {'error: ' if code != STOPPED else ''}{lines[0]}", file=sys.stderr)
    return code


def _with_demo_named(arguments: list[str]) -> list[str]:
    """Put in the demonstration that is meant when none is named: ``unspool demo --sites 10``."""
    from unspool._cli.demos import DEFAULT

    if arguments[:1] == ["demo"] and not (arguments[1:] and _is_name_or_help(arguments[1])):
        return ["demo", DEFAULT, *arguments[1:]]
    return arguments


def _is_name_or_help(argument: str) -> bool:
    return argument in ("-h", "--help") or not argument.startswith("-")


def _parser() -> Parser:
    parser = Parser(prog="unspool", description="Plain Python loops, differentiated to the end.")
    parser.add_argument("--version", action="version", version=f"unspool {__version__}")
    parser.set_defaults(run=partial(_help, parser))
    commands = parser.add_subparsers(metavar="command", parser_class=Parser)
    _add_demo(commands.add_parser("demo", help="run a loop, differentiate it, and compare with exact numbers"))
    info = commands.add_parser("info", help="show versions, BLAS, threads and memory")
    info.set_defaults(run=_info)
    report = commands.add_parser("report", help="make, show or compare reports of runs")
    report.description = "Make the report of a demonstration, show one, or compare two in one page."
    report.add_argument(
        "runs",
        metavar="run",
        nargs="+",
        help="a demonstration, the folder of one, or the file of a report; two to compare",
    )
    report.add_argument("--output", metavar="FILE", type=page_path, help="where the page goes")
    report.set_defaults(run=_report)
    runs = commands.add_parser("runs", help="list the runs in a folder, with how far they are and their size")
    runs.add_argument("folder", metavar="FOLDER", nargs="?", default=".", help="where to look")
    runs.set_defaults(run=_runs)
    resume = commands.add_parser("resume", help="go on with a demonstration that was written with --spool")
    resume.add_argument("folder", metavar="RUN", help="the folder of the run")
    resume.set_defaults(run=_resume)
    check = commands.add_parser("check", help="check derivatives against differences on this machine")
    check.add_argument("names", metavar="name", nargs="*", help="checks to run, or the beginnings of their names")
    check.set_defaults(run=_check)
    return parser


def _add_demo(parser: argparse.ArgumentParser) -> None:
    from unspool._cli.demos import DEFAULT, DEMOS

    parser.description = f"Run a loop, differentiate it, and compare with exact numbers. Without a name: {DEFAULT}."
    loops = parser.add_subparsers(metavar="loop", required=True, parser_class=Parser)
    for name, demo in DEMOS.items():
        options = loops.add_parser(name, help=demo.summary, description=_sentence(demo.summary))
        demo.add_options(options)
        options.set_defaults(run=_demo, demo=name)


def _sentence(summary: str) -> str:
    return f"{summary[0].upper()}{summary[1:]}."


def _help(parser: argparse.ArgumentParser, _: argparse.Namespace) -> int:
    parser.print_help()
    return 0


def _demo(chosen: argparse.Namespace) -> int:
    from unspool._cli.demo import play
    from unspool._cli.demos import DEMOS
    from unspool._cli.runs import spooled

    chosen.run_to_write = spooled(chosen)
    return play(DEMOS[chosen.demo].tell(chosen), chosen)


def _report(chosen: argparse.Namespace) -> int:
    from unspool._cli.reports import make_or_show

    return make_or_show(chosen.runs, chosen.output)


def _runs(chosen: argparse.Namespace) -> int:
    from unspool._cli.runs import list_runs

    return list_runs(Path(chosen.folder))


def _resume(chosen: argparse.Namespace) -> int:
    from unspool._cli.demos import DEMOS
    from unspool._cli.runs import options_of

    options = options_of(Path(chosen.folder))
    if options["demo"] not in DEMOS:
        raise ArgumentError(f"the run is of the demonstration {options['demo']!r}, which there is not")
    # As it was asked for then, with the defaults of now for what there was not.
    asked = _parser().parse_args(["demo", options["demo"]])
    for name, value in options.items():
        setattr(asked, name, value)
    return int(asked.run(asked))


def _info(_: argparse.Namespace) -> int:
    from unspool._cli.info import show_info

    return show_info()


def _check(chosen: argparse.Namespace) -> int:
    from unspool._cli.check import run_checks

    return run_checks(chosen.names)
