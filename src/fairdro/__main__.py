"""``python -m fairdro``."""

from fairdro.cli import main

main()
