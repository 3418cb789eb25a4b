"""`python -m mallang`, and the command `mallang` itself.

Nothing is imported above: Ctrl-C gets one line and exit code 130 from the first moment on.
"""


def main() -> None:
    """Run the command."""
    try:
        from mallang.commands.main import main as run

        run()
    except KeyboardInterrupt:
        import sys

        if sys.stderr is not None:
            sys.stderr.write("mallang: stopped\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
