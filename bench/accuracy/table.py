"""Tables of results as Markdown and JSON. A cell is SQNR in dB / agreement with the float model's best class in % /
top-1 on labels in %; of a detector the SQNR of its worst output / AP50 against the float model's boxes / AP50 on
labels, where there are some."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

FLOAT = "float"
BOX_METRICS = ("agreement ap50", "ap50")


@dataclass(frozen=True)
class Score:
    """sqnr: dB by output. agreement, top1: %, None where the model does not classify. boxes: metrics of a detector."""

    sqnr: Mapping[str, float]
    agreement: float | None = None
    top1: float | None = None
    boxes: Mapping[str, float] | None = None

    @property
    def worst_db(self) -> float:
        return min(self.sqnr.values())

    @property
    def cell(self) -> str:
        rates = [f"{rate:.1f}" for rate in (self.agreement, self.top1) if rate is not None]
        rates += [f"{self.boxes[name]:.1f}" for name in BOX_METRICS if self.boxes and name in self.boxes]
        return " / ".join([f"{self.worst_db:.1f}", *rates])


Row = dict[str, dict[str, Score]]  # scores by column and setting


def best(rows: Mapping[str, Row], columns: Sequence[str]) -> str:
    """The best setting of each column; the best SQNR of a row is bold."""
    lines = []
    for name, row in rows.items():
        scores = {column: _best(row[column]) for column in columns if row.get(column)}
        most = max((score.worst_db for score in scores.values()), default=0.0)
        cells = [_cell(scores.get(column), most) for column in columns]
        whole = row[FLOAT][""]
        top1 = (whole.boxes or {}).get("ap50", whole.top1)
        lines.append([name, "-" if top1 is None else f"{top1:.1f}", *cells])
    return _markdown(["model", "float top-1 or AP50", *columns], lines)


def settings(rows: Mapping[str, Row], peers: Mapping[str, tuple[str, Sequence[str]]]) -> str:
    """SQNR of every setting of the peers, in dB."""
    columns = [(column, setting) for column, (_, options) in peers.items() for setting in options]
    lines = []
    for name, row in rows.items():
        scores = [row.get(column, {}).get(setting) for column, setting in columns]
        lines.append([name, *("-" if score is None else f"{score.worst_db:.1f}" for score in scores)])
    return _markdown(["model", *(f"{column}, {setting}" for column, setting in columns)], lines)


def as_json(rows: Mapping[str, Row]) -> dict[str, dict[str, dict[str, object]]]:
    return {
        name: {column: {key: asdict(score) for key, score in scores.items()} for column, scores in row.items()}
        for name, row in rows.items()
    }


def _best(scores: Mapping[str, Score]) -> Score:
    return max(scores.values(), key=lambda score: score.worst_db)


def _cell(score: Score | None, most: float) -> str:
    if score is None:
        return "-"
    return f"**{score.cell}**" if score.worst_db == most else score.cell


def _markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in [head, ["---"] * len(head), *lines])
