"""``fairdro``, and ``python -m fairdro``."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C is an end like others, also while the libraries are being loaded."""
    try:
        from fairdro.cli import main as run  # noqa: PLC0415

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
