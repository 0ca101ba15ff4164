"""Checks a command's --json result against floors:  floors.py result.json top1=97 sqnr_db=25

Exits with 1 and names every key that is missing or below its floor.
"""

import json
import sys


def main(path: str, *floors: str) -> int:
    with open(path, encoding="utf-8") as file:
        result = json.load(file)
    missed = 0
    for key, floor in (item.split("=") for item in floors):
        value = result.get(key, result.get("metrics", {}).get(key))
        passed = value is not None and value >= float(floor)
        missed += not passed
        shown = "missing" if value is None else f"{value:.6g}"
        print(f"{key}: {shown} ({'at least' if passed else 'MISSED, wanted at least'} {floor})")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
