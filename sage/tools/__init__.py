"""What people run beside a study: plan, check, compare, verify and archive."""

import argparse


def parser_of(command: str, described: str | None) -> argparse.ArgumentParser:
    """A parser for `sage-rlvr COMMAND`, whose help begins with the text `described` as it is."""
    return argparse.ArgumentParser(
        prog=f"sage-rlvr {command}",
        description=described,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_data(
    parser: argparse.ArgumentParser, told: str, required: bool = True, *alias: str
) -> None:
    """The arguments for problems of one's own: where they are (as `told`), and their columns."""
    parser.add_argument("--data", *alias, required=required, help=told)
    parser.add_argument("--problem", metavar="COLUMN", help="the column of the problems")
    parser.add_argument("--answer", metavar="COLUMN", help="the column of the answers")
