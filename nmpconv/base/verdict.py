"""Verdict on a converted model: a word, a sentence and four numbers, the same in the CLI, JSON, pages and Python.

Both models see the same samples. The word comes from the first of these that is known:

1. labels: points of top-1 that the integers lose against the float model;
2. boxes: points of AP50 that they lose, or where only the float model's boxes are known, that they lack to 100 %;
3. scores of classes: % of the answers, the best classes, that they lose;
4. any other output: their SQNR;
5. indices or truth alone: % of the elements that are not the float model's.

`KEEPS` and `LITTLE` are the bounds. There is no word where the 95 % confidence interval reaches from the bound of
"keeps" to beyond `FAR`: so few samples promise nothing, and condemn nothing. Labels that the float model guesses no
better than chance, or much better but for an offset, are not those of the model, and decide nothing.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from nmpconv.base import confidence
from nmpconv.base.quantities import decibels, scaled, size

TOP1, AP50, AGREEMENT, SQNR, EQUAL = "top1", "ap50", "agreement", "sqnr", "elements"
KEEPS: Mapping[str, float] = {TOP1: 1.0, AP50: 1.0, AGREEMENT: 2.0, SQNR: 30.0, EQUAL: 2.0}
LITTLE: Mapping[str, float] = {TOP1: 3.0, AP50: 3.0, AGREEMENT: 5.0, SQNR: 20.0, EQUAL: 5.0}
FAR: Mapping[str, float] = {TOP1: 10.0, AP50: 20.0, AGREEMENT: 20.0, SQNR: 10.0, EQUAL: 20.0}
"""Bounds of "keeps", of "loses a little", and of intervals: most points or % that are lost; of SQNR the least dB."""
WORDS = ("keeps", "loses a little", "loses")
UNSURE, UNKNOWN = "too few to tell", "not measured"
SILENT = "the float model gives 0 alone on these samples"
BETTER_THAN_CHANCE = 1.1  # times the top-1 of a guess, from which on labels fit the model

Span = tuple[float, float]


@dataclass(frozen=True)
class Footprint:
    """Needs of a run. ram: bytes of the arena. flash: bytes of the file. instructions: estimated."""

    ram: int
    flash: int
    instructions: int
    target: str

    @property
    def machine(self) -> str:
        """The target as people write it."""
        _, arm, core = self.target.partition("cortex-m")
        return f"a Cortex-M{core.replace('plus', '+')}" if arm else {"rv32": "RV32"}.get(self.target, self.target)

    @property
    def words(self) -> str:
        """All figures, and where."""
        return ", ".join(f"{value} {name}" for name, value in self.tiles) + f" on {self.machine}"

    @property
    def tiles(self) -> list[tuple[str, str]]:
        count = scaled(self.instructions).strip()
        return [("RAM", size(self.ram)), ("flash", size(self.flash)), ("instructions", count)]


@dataclass(frozen=True)
class Boxes:
    """AP50 of both models in %. ours, floats: against labels. agreement: against the float model's boxes. margin: half
    the 95 % confidence interval of the points that are lost. None: not known."""

    ours: float | None = None
    floats: float | None = None
    agreement: float | None = None
    margin: float | None = None

    @property
    def lost(self) -> float | None:
        """Points that the integers lose."""
        if self.ours is not None and self.floats is not None:
            return self.floats - self.ours
        return None if self.agreement is None else 100 - self.agreement


@dataclass(frozen=True)
class Quality:
    """Figures of both models on the same samples. n: number of samples, and unit their name. agreed: those with the
    float model's best class. labelled: those with a label; right, float_right: how many of them each model gives;
    lost, gained: how many only the float model, and only the integers give. classes: number of scores.
    db, db_margin: SQNR, and half its 95 % confidence interval. worst_db, worst: SQNR of the worst sample, and its name.
    equal, equal_margin: % of elements that are the float model's, of indices and truth, and half its interval.
    why: the reason why nothing was compared. None: not known.
    """

    n: int = 0
    unit: str = "images"
    why: str = "nothing to compare with"
    agreed: int | None = None
    labelled: int = 0
    right: int | None = None
    float_right: int | None = None
    lost: int = 0
    gained: int = 0
    classes: int = 0
    boxes: Boxes | None = None
    db: float | None = None
    db_margin: float | None = None
    worst_db: float | None = None
    equal: float | None = None
    equal_margin: float | None = None
    worst: str = field(default="", compare=False)  # where samples come from makes no other figures

    @property
    def samples(self) -> str:
        """Number and unit: "1 image", "20 images"."""
        unit = re.sub(r"s\b", "", self.unit, count=1) if self.n == 1 else self.unit
        return f"{self.n} {unit}"

    @property
    def top1(self) -> float | None:
        """Right answers in %."""
        return None if self.right is None or not self.labelled else 100 * self.right / self.labelled

    @property
    def float_top1(self) -> float | None:
        """Right answers of the float model in %."""
        return None if self.float_right is None or not self.labelled else 100 * self.float_right / self.labelled

    @property
    def change(self) -> Span | None:
        """The 95 % confidence interval of the points of top-1 that are gained; None without both models."""
        known = self.right is not None and self.float_right is not None and self.labelled
        return confidence.difference(self.gained, self.lost, self.labelled) if known else None

    @property
    def agreement(self) -> float | None:
        """Kept answers in %."""
        return None if self.agreed is None or not self.n else 100 * self.agreed / self.n

    @property
    def db_range(self) -> Span | None:
        """The 95 % confidence interval of the SQNR."""
        if self.db is None or self.db_margin is None:
            return None
        return self.db - self.db_margin, self.db + self.db_margin

    @property
    def basis(self) -> str:
        """Kind of figure that the word comes from: one of `KEEPS`, or "" where nothing was compared."""
        chance = BETTER_THAN_CHANCE * 100 / self.classes if self.classes else 0.0
        if self.change is not None and (self.float_top1 or 0.0) >= chance:
            return TOP1
        if self.boxes is not None and self.boxes.lost is not None:
            return AP50
        figures = {AGREEMENT: self.agreed, SQNR: self.db, EQUAL: self.equal}
        return next((basis for basis, figure in figures.items() if figure is not None), "")

    @property
    def ap50_margin(self) -> float | None:
        """Half the 95 % confidence interval of the AP50 that is lost. A jackknife of few images without a loss has no
        width: then as if each image were an answer."""
        if self.boxes is None or self.boxes.margin is None:
            return None
        return max(self.boxes.margin, 100 - confidence.proportion(self.n, self.n)[0])

    @property
    def loss_range(self) -> Span | None:
        """The 95 % confidence interval of `loss`; None where it is not known."""
        if self.basis == TOP1 and self.change is not None:
            return -self.change[1], -self.change[0]
        if self.basis == AGREEMENT:
            low, high = confidence.proportion(self.agreed or 0, self.n)
            return 100 - high, 100 - low
        if self.basis == AP50 and self.boxes is not None and self.boxes.lost is not None:
            margin = math.inf if self.ap50_margin is None else self.ap50_margin
            return self.boxes.lost - margin, self.boxes.lost + margin
        if self.basis == EQUAL and self.loss is not None:
            margin = math.inf if self.equal_margin is None else self.equal_margin
            return self.loss - margin, self.loss + margin
        return self.db_range

    @property
    def loss(self) -> float | None:
        """Points or % that are lost by the basis; of SQNR the dB that are left."""
        if self.basis == TOP1:
            return (self.float_top1 or 0.0) - (self.top1 or 0.0)
        if self.basis == AGREEMENT:
            return 100 - (self.agreement or 0.0)
        if self.basis == EQUAL:
            return 100 - (self.equal or 0.0)
        return self.boxes.lost if self.basis == AP50 and self.boxes else self.db


def quality(
    names: Sequence[str],
    unit: str,
    *,
    ours: Sequence[int] = (),
    floats: Sequence[int] = (),
    labels: Sequence[int | None] | None = None,
    classes: int = 0,
    db: float | None = None,
    db_margin: float | None = None,
    each_db: Sequence[float] = (),
    each_equal: Sequence[float] = (),
    silent: bool = False,
) -> Quality:
    """Figures of samples.

    names: of the samples: paths, and so on. ours, floats: best class of each, () where it is not known. labels: right
    class of each, None where it has none. classes: number of scores. db, db_margin: SQNR of all. each_db: of each.
    each_equal: of each the % of indices and truth that are the float model's.
    silent: the float model gives 0 alone, and nothing is to be lost.
    """
    if silent:
        return Quality(len(names), unit, SILENT)
    result = Quality(len(names), unit, classes=classes, db=db, db_margin=db_margin)
    if len(each_db):
        at = int(np.argmin(each_db))
        result = replace(result, worst_db=float(each_db[at]), worst=short_name(names[at]))
    if len(each_equal):
        result = replace(result, equal=float(np.mean(each_equal)), equal_margin=confidence.margin(each_equal))
    if len(ours) and len(floats):
        result = replace(result, agreed=int(np.sum(np.equal(ours, floats))))
    known = [i for i, label in enumerate(labels or ()) if label is not None]
    if labels is None or not known or not len(ours):
        return result
    classed = np.array([labels[i] for i in known])
    if len(floats) and _is_off(np.asarray(floats)[known] - classed):
        return result
    right = np.asarray(ours)[known] == classed
    result = replace(result, labelled=len(known), right=int(right.sum()))
    if not len(floats):
        return result
    true = np.asarray(floats)[known] == classed
    lost, gained = int((true & ~right).sum()), int((right & ~true).sum())
    return replace(result, float_right=int(true.sum()), lost=lost, gained=gained)


def _is_off(differences: np.ndarray) -> bool:
    """Checks that an offset between classes and labels is far more frequent than none."""
    [(offset, count)] = Counter(differences.tolist()).most_common(1)
    return offset != 0 and count > 2 * int(np.sum(differences == 0)) + 2


def short_name(path: str) -> str:
    """The file and its folder: whole paths differ from machine to machine."""
    return "/".join(Path(path).parts[-2:])


@dataclass(frozen=True)
class Verdict:
    """widths: of results, see `widths`. footprint: None where it is not known."""

    widths: str
    quality: Quality
    footprint: Footprint | None = None

    @property
    def word(self) -> str:
        """One of `WORDS`, UNSURE or UNKNOWN."""
        basis, value = self.quality.basis, self.quality.loss
        if not basis or value is None:
            return UNKNOWN

        def within(value: float, most: Mapping[str, float]) -> bool:
            return value >= most[basis] if basis == SQNR else value <= most[basis]

        if (span := self.quality.loss_range) is not None:
            least, worst = reversed(span) if basis == SQNR else span
            if within(least, KEEPS) and not within(worst, FAR):
                return UNSURE
        return WORDS[0 if within(value, KEEPS) else 1 if within(value, LITTLE) else 2]

    @property
    def sentence(self) -> str:
        """States how much of the float model is left, on how many samples, with 95 % confidence intervals."""
        quality = self.quality
        samples = quality.samples
        clauses = []
        if quality.boxes is not None and quality.boxes.lost is not None:
            clauses.append(_boxes(quality.boxes, samples, quality.ap50_margin))
        if quality.agreement is not None:
            clauses.append(
                f"keeps {_rate(quality.agreement)} of {quality.n} answers"
                f" ({_span(confidence.proportion(quality.agreed or 0, quality.n), 0)} %)"
            )
        if quality.top1 is not None and (quality.basis == TOP1 or quality.float_top1 is None):
            clauses.append(_top1(quality))
        if not clauses and quality.db is not None:
            clauses.append(f"is {_nearness(quality)} on {samples}")
        if not clauses and quality.equal is not None:
            likely = "" if quality.equal_margin is None else f" (give or take {quality.equal_margin:.1f} points)"
            clauses.append(f"keeps {_rate(quality.equal)} of the elements on {samples}{likely}")
        if not clauses:
            return f"{self.widths}, {UNKNOWN}: {quality.why}"
        return f"{self.widths} {'; '.join(clauses)}"

    @property
    def nearness(self) -> str:
        """SQNR of all samples beside that of the worst one; "" where it is not known."""
        quality = self.quality
        if quality.db is None:
            return ""
        if quality.db == math.inf:
            return f"no difference on {quality.samples}"
        interval = "" if quality.db_range is None else f" ({_span(quality.db_range, 1)} dB)"
        worst = "" if quality.worst_db is None else f", worst {decibels(quality.worst_db)}: {quality.worst}"
        return f"{decibels(quality.db)}{interval} of {quality.samples}{worst}"

    @property
    def tiles(self) -> list[tuple[str, str]]:
        """The four numbers by name."""
        quality = self.quality
        boxes = quality.boxes or Boxes()
        named = [
            ("top-1", quality.top1 if quality.basis == TOP1 else None),
            ("AP50", boxes.ours),
            ("boxes kept", boxes.agreement),
            ("answers kept", quality.agreement),
            ("top-1", quality.top1),
            ("elements kept", quality.equal),
        ]
        first = next(((name, _rate(value)) for name, value in named if value is not None), None)
        if first is None and quality.db is not None:
            first = ("SQNR", decibels(quality.db))
        return [*([first] if first else []), *(self.footprint.tiles if self.footprint else [])]

    def to_json(self) -> dict[str, Any]:
        """Plain data. Rates and their 95 % confidence intervals are in %, changes in points."""
        quality, boxes = self.quality, self.quality.boxes or Boxes()
        agreed = None if quality.agreed is None else confidence.proportion(quality.agreed, quality.n)
        return {
            "word": self.word,
            "sentence": self.sentence,
            "basis": quality.basis or None,
            "n": quality.n,
            "agreement": quality.agreement,
            "agreement_range": agreed,
            "labelled": quality.labelled,
            "top1": quality.top1,
            "float_top1": quality.float_top1,
            "top1_change_range": quality.change,
            "ap50": boxes.ours,
            "float_ap50": boxes.floats,
            "ap50_agreement": boxes.agreement,
            "ap50_margin": quality.ap50_margin,
            "sqnr_db": quality.db,
            "sqnr_range": quality.db_range,
            "worst_db": quality.worst_db,
            "worst": quality.worst or None,
            "elements": quality.equal,
            "elements_margin": quality.equal_margin,
            "footprint": None if self.footprint is None else asdict(self.footprint),
        }


def of(plain: Mapping[str, Any]) -> Verdict:
    """A verdict of what `dataclasses.asdict` made of it. Raises TypeError, KeyError, ValueError for anything else."""
    figures = dict(plain["quality"])
    boxes, needs = figures.pop("boxes"), plain["footprint"]
    quality = Quality(**figures, boxes=None if boxes is None else Boxes(**boxes))
    whole = Verdict(str(plain["widths"]), quality, None if needs is None else Footprint(**needs))
    json.dumps([whole.to_json(), whole.nearness, whole.tiles])  # fails for figures that are none
    return whole


def widths(bits: Sequence[int]) -> str:
    """Types of results of layers: "int8", or "int8 (int16 in 3 of 40 layers)"."""
    first, *others = sorted(set(bits)) or [8]
    more = ", ".join(f"int{n} in {list(bits).count(n)} of {len(bits)} layers" for n in others)
    return f"int{first} ({more})" if more else f"int{first}"


def _top1(quality: Quality) -> str:
    if quality.change is None:
        right = confidence.proportion(quality.right or 0, quality.labelled)
        return f"gives {_rate(quality.top1)} of {quality.labelled} right answers ({_span(right, 0)} %)"
    low, high = quality.change
    of = "" if quality.agreed is not None and quality.labelled == quality.n else f" of {quality.labelled}"
    rates = f"float {_rate(quality.float_top1)}, here {_rate(quality.top1)}"
    return f"top-1{of}: {rates} (change {low:+.1f} to {high:+.1f} points)"


def _boxes(boxes: Boxes, samples: str, margin: float | None) -> str:
    likely = "" if margin is None else f" (give or take {margin:.1f} points)"
    if boxes.ours is not None and boxes.floats is not None:
        return f"finds boxes with AP50 {_rate(boxes.ours)} on {samples}, float {_rate(boxes.floats)}{likely}"
    return f"keeps {_rate(boxes.agreement)} of the boxes (AP50 against the float model) on {samples}{likely}"


def _nearness(quality: Quality) -> str:
    interval = "" if quality.db_range is None else f" ({_span(quality.db_range, 1)} dB)"
    if quality.db == math.inf:
        return "equal to the float model"
    return f"{decibels(quality.db)}{interval} from the float model"


def _rate(value: float | None) -> str:
    """Three digits: 98.2 %, 100 %."""
    assert value is not None
    return f"{value:.0f} %" if value in (0.0, 100.0) else f"{value:.1f} %"


def _span(span: Span, digits: int) -> str:
    return f"{span[0]:.{digits}f} to {span[1]:.{digits}f}"
