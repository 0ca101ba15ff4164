"""The published architectures of `make models`: the lines of models.txt, checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

LIST = Path(__file__).with_name("models.txt")
PACKAGES = ("timm", "torchvision", "smp", "ultralytics")


@dataclass(frozen=True)
class Row:
    """package: of PACKAGES. model: its name there; for smp ARCHITECTURE-ENCODER. side: of the square images, in pixels.

    frames: of a video, 0 for images. options: for the function that builds the model. floor: the least variance that a
    BatchNorm gives a channel, in percent of the mean of its channels.
    """

    package: str
    model: str
    side: int
    frames: int = 0
    options: dict[str, int] = field(default_factory=dict)
    floor: int = 0

    @property
    def name(self) -> str:
        return f"{self.package}.{self.model}"


def read(path: Path = LIST) -> list[Row]:
    """All rows; ValueError says which line is not one."""
    rows: dict[str, Row] = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.split("#")[0].strip():
            continue
        where = f"{path.name}:{number}"
        try:
            row = _row(line.split("#")[0].split())
        except ValueError as error:
            raise ValueError(f"{where}: expected PACKAGE MODEL SIDE [KEY=NUMBER ...]: {error}") from None
        if row.name in rows:
            raise ValueError(f"{where}: {row.name} is there twice")
        rows[row.name] = row
    return list(rows.values())


def _row(words: list[str]) -> Row:
    package, model, side, *others = words
    if package not in PACKAGES:
        raise ValueError(f"the package '{package}' is none of {', '.join(PACKAGES)}")
    options = {key: int(number) for key, _, number in (word.partition("=") for word in others)}
    frames, floor = (options.pop(key, 0) for key in ("frames", "floor"))
    return Row(package, model, int(side), frames, options, floor)
