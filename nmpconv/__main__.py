"""python -m nmpconv."""

from nmpconv.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
