"""Runs the command line from a checkout: python cli.py convert ..."""

from nmpconv.__main__ import main

if __name__ == "__main__":
    raise SystemExit(main())
