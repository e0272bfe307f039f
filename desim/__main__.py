"""The command `desim`, and `python -m desim`: also a Ctrl-C while it is imported ends in words."""

import sys

INTERRUPTED = 130  # exit code of what Ctrl-C ended before there was anything to keep


def main() -> None:
    """Run the command line; leave by SystemExit with its exit code."""
    try:
        from desim.interface.cli import main as command_line

        command_line()
    except KeyboardInterrupt:
        sys.stderr.write("stopped by Ctrl-C\n")
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
