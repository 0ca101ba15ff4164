"""The word, the sentence and the figures of a verdict, by its stated rules."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import numpy as np
import pytest

from nmpconv.base import confidence, verdict
from nmpconv.base.sqnr import each_db, effects, sqnr_db
from nmpconv.base.verdict import Boxes, Footprint, Quality, Verdict, quality

NAMES = [f"folder/{i}.png" for i in range(200)]


def answers(wrong: int, lost: int, gained: int = 0, labels: bool = True) -> Quality:
    """200 samples of class 0 of 2; the float model misses some, the integers miss more and find some of these."""
    floats = np.array([1] * wrong + [0] * (200 - wrong))
    ours = floats.copy()
    ours[:gained] = 0
    ours[wrong : wrong + lost] = 1
    return quality(NAMES, "images", ours=ours, floats=floats, labels=[0] * 200 if labels else None, classes=2)


@pytest.mark.parametrize(
    ("found", "word", "basis"),
    [
        (answers(20, 2), "keeps", "top1"),
        (answers(20, 3), "loses a little", "top1"),
        (answers(20, 6), "loses a little", "top1"),
        (answers(20, 7), "loses", "top1"),
        (answers(20, 12, 12), "keeps", "top1"),  # other answers, but no worse
        (answers(20, 12, 12, labels=False), "loses", "agreement"),
        (answers(20, 4, labels=False), "keeps", "agreement"),
        (answers(20, 10, labels=False), "loses a little", "agreement"),
        (answers(120, 2), "keeps", "agreement"),  # labels that a guess meets as often
        (Quality(90, boxes=Boxes(40.0, 41.0, margin=2.0)), "keeps", "ap50"),
        (Quality(90, boxes=Boxes(40.0, 43.1, margin=2.0)), "loses", "ap50"),
        (Quality(90, boxes=Boxes(agreement=98.0, margin=2.0)), "loses a little", "ap50"),
        (Quality(9, boxes=Boxes(), db=30.0), "keeps", "sqnr"),
        (Quality(9, db=29.9), "loses a little", "sqnr"),
        (Quality(9, db=20.0), "loses a little", "sqnr"),
        (Quality(9, db=19.9), "loses", "sqnr"),
        (Quality(9, db=math.inf), "keeps", "sqnr"),
        (Quality(9, db=-math.inf), "loses", "sqnr"),
        (Quality(), "not measured", ""),
        (Quality(15, agreed=15), "too few to tell", "agreement"),
        (Quality(16, agreed=16), "keeps", "agreement"),
        (Quality(12, agreed=11), "too few to tell", "agreement"),  # 65 to 99 %: nor is that a loss
        (Quality(12, agreed=5), "loses", "agreement"),
        (Quality(6, labelled=6, right=6, float_right=6, agreed=6), "too few to tell", "top1"),
        (Quality(27, labelled=27, right=27, float_right=27, agreed=27), "keeps", "top1"),
        (Quality(2, boxes=Boxes(40.0, 40.0)), "too few to tell", "ap50"),
        (Quality(15, boxes=Boxes(40.0, 40.0, margin=0.0)), "too few to tell", "ap50"),
        (Quality(20, boxes=Boxes(40.0, 40.0, margin=0.0)), "keeps", "ap50"),
        (Quality(90, boxes=Boxes(40.0, 41.0, margin=22.0)), "too few to tell", "ap50"),
        (Quality(3, db=33.0, db_margin=25.0), "too few to tell", "sqnr"),
        (Quality(3, db=33.0, db_margin=9.0), "keeps", "sqnr"),
        (Quality(9, equal=98.0, equal_margin=1.0), "keeps", "elements"),
        (Quality(9, equal=97.0, equal_margin=1.0), "loses a little", "elements"),
        (Quality(9, equal=90.0, equal_margin=1.0), "loses", "elements"),
        (Quality(1, equal=100.0), "too few to tell", "elements"),
    ],
)
def test_word(found: Quality, word: str, basis: str) -> None:
    assert (Verdict("int8", found).word, found.basis) == (word, basis)


def test_labels_that_are_off_by_one_decide_nothing() -> None:
    classes = list(range(100))
    found = quality(NAMES[:100], "images", ours=classes, floats=classes, labels=[i + 1 for i in classes], classes=101)
    assert (found.basis, found.top1, found.agreement) == ("agreement", None, 100)


def test_sentence_and_numbers() -> None:
    needs = Footprint(1_510_000, 3_660_000, 310_000_000, "cortex-m4")
    found = Verdict("int8", answers(20, 3, 1), needs)
    assert found.sentence == (
        "int8 keeps 98.0 % of 200 answers (95 to 99 %); top-1: float 90.0 %, here 89.0 % (change -3.2 to +1.2 points)"
    )
    assert needs.words == "1.51 MB RAM, 3.66 MB flash, 310 M instructions on a Cortex-M4"
    assert [name for name, _ in found.tiles] == ["top-1", "RAM", "flash", "instructions"]
    every = answers(20, 0, labels=False)
    assert Verdict("int8", every).sentence == "int8 keeps 100 % of 200 answers (98 to 100 %)"
    assert Verdict("int8", Quality(why="sizes only")).sentence == "int8, not measured: sizes only"
    alone = quality(NAMES[:4], "images", ours=[0, 0, 1, 1], labels=[0, 0, 0, None], classes=2)
    assert Verdict("int8", alone).sentence == "int8 gives 66.7 % of 3 right answers (21 to 94 %)"
    boxes = Verdict("int8", Quality(20, boxes=Boxes(agreement=100.0, margin=0.0)))
    assert boxes.sentence.endswith("on 20 images (give or take 16.1 points)")  # not 0.0
    assert boxes.to_json()["ap50_margin"] == pytest.approx(16.1, abs=0.05)


def test_the_worst_sample_stands_beside_all() -> None:
    found = quality(NAMES[:3], "images", db=30.0, db_margin=1.5, each_db=[33.0, 12.5, 31.0])
    assert Verdict("int8", found).nearness == "30.0 dB (28.5 to 31.5 dB) of 3 images, worst 12.5 dB: folder/1.png"
    same = quality(NAMES[:3], "images", db=math.inf, each_db=[math.inf] * 3)
    assert Verdict("int8", same).nearness == "no difference on 3 images"


def test_each_sample_has_the_sqnr_of_its_own_error() -> None:
    rng = np.random.default_rng(0)
    wanted, error = rng.normal(size=(5, 7)), rng.normal(size=(5, 7))
    error[3] = 0
    energies = [np.square(x).sum(axis=1)[np.newaxis] for x in (wanted, error)]
    assert each_db(*energies) == pytest.approx([sqnr_db(a, a - b) for a, b in zip(wanted, error, strict=True)])
    assert effects(*energies).mean() == pytest.approx(0)


def test_a_verdict_can_be_kept() -> None:
    whole = Verdict("int8", Quality(9, boxes=Boxes(40.0, 41.0, None, 2.0)), Footprint(1, 2, 3, "rv32"))
    assert verdict.of(json.loads(json.dumps(asdict(whole)))) == whole
    for plain in ({}, {"widths": "", "quality": {"n": "nine", "db": "x", "boxes": None}, "footprint": None}):
        with pytest.raises((KeyError, TypeError, ValueError)):
            verdict.of(plain)


def test_interval_of_a_difference_holds_the_truth() -> None:
    """In about 95 of 100 tries, of few samples and of rare differences, too."""
    rng = np.random.default_rng(1)
    for count, up, down in ((30, 0.1, 0.02), (400, 0.01, 0.02), (120, 0.0, 0.05)):
        draws = rng.multinomial(count, [up, down, 1 - up - down], size=2000)
        spans = [confidence.difference(int(a), int(b), count) for a, b, _ in draws]
        held = np.mean([low <= 100 * (up - down) <= high for low, high in spans])
        assert 0.93 <= held <= 1.0
    low, high = confidence.difference(0, 0, 50)
    assert low < 0 < high


def test_jackknife_of_a_mean_is_its_margin() -> None:
    values = np.random.default_rng(2).normal(size=12)
    without = [float(np.delete(values, i).mean()) for i in range(12)]
    assert confidence.jackknife(float(values.mean()), without) == pytest.approx(confidence.margin(values))
    assert confidence.jackknife(1.0, [1.0, 2.0]) is None
