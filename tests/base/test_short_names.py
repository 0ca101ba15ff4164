"""Names as people read them: short, never amid a word, and patterns that fit no other name."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from nmpconv.base.short_names import WHOLE, folded, shortened

NET = "StatefulPartitionedCall/functional_1/MobileNetV2"
EXPECTED = {
    "/3/3.0/Conv": "/3/3.0/Conv",
    f"{NET}/expanded_conv_1/project/Conv2D": "*/expanded_conv_1/project/Conv2D",
    f"{NET}/expanded_conv_2/project/Conv2D": "*/expanded_conv_2/project/Conv2D",
    f"{NET}/expanded_conv_2/expand/Conv2D": "*/expand/Conv2D",
    f"{NET}/Conv2D_prequant": "*/Conv2D_prequant",
    f"{NET}/Relu6;{NET}/bn/Fused;{NET}/conv/Conv2D3": "*/Relu6;*",
    f"{NET}/bn_2/Fused;{NET}/a/Conv2D4": "*/bn_2/Fused;*/Conv2D4",
    f"{NET}/bn_2/Fused;{NET}/a/Conv2D5": "*/bn_2/Fused;*/Conv2D5",
    f"{NET}/add_7/Relu;{NET}/bn_7/Fused": "*/add_7/Relu;*/Fused",
    f"{NET}/add_7/Relu;{NET}/bn_7/Fused.copy": "*/add_7/Relu;*.copy",
    f"{NET}/Relu_9;{NET}/add_8/Relu;{NET}/bn_7/Fused": "*/Relu_9;*",
    "x" * 40: "x" * 40,
}


def test_long_names_are_their_shortest_end() -> None:
    found = shortened(EXPECTED)
    assert found == EXPECTED


def test_a_short_name_is_a_pattern_that_fits_one_name() -> None:
    for name, short in shortened(EXPECTED).items():
        assert [other for other in EXPECTED if fnmatchcase(other, short)] == [name]
        assert len(name) <= WHOLE or len(short) <= len(name)


@pytest.mark.parametrize("width", [7, 8, 16, 23, 60])
def test_names_fold_behind_separators(width: int) -> None:
    """Lines hold all of a name whose parts fit; of a longer part its two ends, which tell it from others."""
    name = "net_1/block/stage_one.two:0;a b;" + "/"
    lines = folded(name, width)
    assert "".join(lines).replace(" ", "") == name.replace(" ", "")
    assert all(len(line) <= width and (line[-1] in "/_.:;" or line == lines[-1] or " " in name) for line in lines)
    long = [f"Partitioned{'x' * 90}Conv{i}" for i in range(2)]
    ends = [folded(part, width) for part in long]
    assert [len(line) for [line] in ends] == [width, width]
    assert ends[0] != ends[1] and ends[0][0][:2] == "Pa"
    assert folded("", width) == [""]
