"""Tables of numbers: rows are samples, or moments of windows; headers, labels, times; what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from nmpconv.data.samples import open_samples
from nmpconv.data.sources import files_of
from nmpconv.errors import InputError

VALUES = np.arange(60, dtype=np.float32).reshape(20, 3) / 4


def table(path: Path, values: np.ndarray, header: str = "", last: Sequence[object] = ()) -> Path:
    rows = [",".join(map(str, row)) for row in values.tolist()]
    rows = [f"{row},{one}" for row, one in zip(rows, last, strict=True)] if len(last) else rows
    path.write_text("\n".join(([header] if header else []) + rows) + "\n")
    return path


@pytest.mark.parametrize("header", ["", "ax,ay,az"])
@pytest.mark.parametrize(("shape", "turn"), [((1, 8, 3), False), ((1, 3, 8), True), ((1, 1, 8, 3), False)])
def test_windows_follow_each_other(tmp_path: Path, shape: tuple[int, ...], turn: bool, header: str) -> None:
    """20 rows are two windows of 8; the model decides which axis is time."""
    samples = open_samples(table(tmp_path / "walk.csv", VALUES, header), shape, None)
    assert (len(samples), samples.kind, samples.labels) == (2, "array", None)
    part = VALUES[8:16]
    np.testing.assert_array_equal(samples[1], (part.T if turn else part).reshape(shape))


@pytest.mark.parametrize(("asked", "starts"), [("step=4", [0, 4, 8, 12]), ("window=8,step=12", [0, 12])])
def test_steps_of_windows(tmp_path: Path, asked: str, starts: list[int]) -> None:
    table(tmp_path / "walk.csv", VALUES)
    path = tmp_path / f"walk.csv@{asked}"
    samples = open_samples(path, (1, 8, 3), None)
    assert [x[0, 0, 0] for x in samples] == [VALUES[i, 0] for i in starts]
    assert files_of(path) == [tmp_path / "walk.csv"]


def test_rows_that_are_samples(tmp_path: Path) -> None:
    path = tmp_path / "features.tsv"
    path.write_text("label\ta\tb\tc\n" + "\n".join(f"{i % 2}\t{i}\t{i + 1}\t{-i}" for i in range(5)))
    samples = open_samples(path, (1, 3), None)
    assert samples.labels == (0, 1, 0, 1, 0)
    assert samples[3].tolist() == [[3, 4, -3]]


def test_a_window_over_two_labels_has_none(tmp_path: Path) -> None:
    path = table(tmp_path / "walk.csv", VALUES, "ax,ay,az,label", ["run"] * 10 + ["walk"] * 10)
    samples = open_samples(f"{path}@step=4", (1, 4, 3), None, classes=("walk", "run"))
    assert samples.labels == (1, 1, None, 0, 0)
    with pytest.raises(InputError, match="the label 'run' is not a class number") as refused:
        open_samples(path, (1, 4, 3), None)
    assert "--labels FILE" in refused.value.hint and "in the order" in refused.value.hint


def test_a_column_of_time_is_left_out_where_it_fits_without(tmp_path: Path) -> None:
    path = table(tmp_path / "walk.csv", VALUES, "Time,x,y")
    np.testing.assert_array_equal(open_samples(path, (1, 10, 2), None)[0], VALUES[np.newaxis, :10, 1:])
    assert open_samples(path, (1, 10, 3), None)[0].shape == (1, 10, 3)


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("Timestamp (ms)", "17"),
        ("time [s]", "0.5"),
        ("time_ms", "3"),
        ("Date", "2026-01-01 10:00"),
        ("epoch", "x"),
        ("", "8"),
        ("Unnamed: 0", "8"),
    ],
)
def test_times_need_be_no_numbers(tmp_path: Path, name: str, first: str) -> None:
    """As phones, loggers and spreadsheets write them; "time_of_flight" is no time."""
    (tmp_path / "log.csv").write_text(f"# a phone\n{name},x,y\n" + "".join(f"{first},{i},{-i}\n" for i in range(6)))
    assert open_samples(tmp_path / "log.csv", (1, 6, 2), None)[0][0, 5].tolist() == [5, -5]
    (tmp_path / "flight.csv").write_text("time_of_flight,x,y\n1,2,3\n")
    with pytest.raises(InputError, match=r"3 column\(s\)"):
        open_samples(tmp_path / "flight.csv", (1, 1, 2), None)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_spreadsheets_of_countries_with_decimal_commas(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "excel.csv").write_text("1,25;-2\n3;,5\n", encoding)
    assert [x.tolist() for x in open_samples(tmp_path / "excel.csv", (1, 2), None)] == [[[1.25, -2]], [[3, 0.5]]]
    (tmp_path / "excel.csv").write_text("x;y;class\n1,25;-2;cold, wet\n", encoding)
    samples = open_samples(tmp_path / "excel.csv", (1, 2), None, classes=("dry", "cold, wet"))
    assert (samples[0].tolist(), samples.labels) == ([[1.25, -2]], (1,))


@pytest.mark.parametrize(
    ("name", "text", "encoding"),
    [
        ("a.csv", "t;x [m/s²];y [°]\n0;1,25;-2\n1;3;,5\n", "cp1252"),
        ("a.csv", "x,y\nm/s²,°\n1.25,-2\n3,.5\n", "utf-8"),
        ("a.csv", "x;y\nm/s²;\n1,25;-2\n3;,5\n", "cp1252"),
        ("a.csv", "1.25|-2\n3|.5\n", "utf-8"),
        ("a.csv", "x|y\n1,25|-2\n3|,5\n", "utf-8"),
        ("a.tsv", "date\tx\ty\n1.2.26 8:00\t1,25\t-2\n1.2.26 9:00\t3\t0,5\n", "utf-8"),
        ("a.txt", "  1.25  -2.0e+00\n  3     5e-1\n", "utf-8"),
        ("a.txt", "x y\n1.25 -2\n3 .5\n", "utf-8"),
        ("a.txt", "1.25 -2\n3 .5\n# end\n", "utf-8"),
        ("a.txt", "x [°]\ty\n1,25\t-2\n3\t,5\n", "cp1252"),
        ("a.txt", "1,25 -2,0\n3,0  0,5\n", "utf-8"),
        ("a.csv", "x  y\n1,25 -2,0\n3,0  0,5\n", "utf-8"),
    ],
)
def test_tables_as_loggers_write_them(tmp_path: Path, name: str, text: str, encoding: str) -> None:
    """Other marks, units below the header, text of Windows, and .txt files."""
    (tmp_path / name).write_bytes(text.encode(encoding))
    assert [x.tolist() for x in open_samples(tmp_path / name, (1, 2), None)] == [[[1.25, -2]], [[3, 0.5]]]
    assert files_of(tmp_path / name) == [tmp_path / name]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("1,234.5\t5\n6\t7\n", [[1234.5, 5], [6, 7]]),
        ("x\ty\n1,234\t5.25\n-6\t7\n", [[1234, 5.25], [-6, 7]]),
        ("1,234,567\t-2,500\n", [[1234567, -2500]]),
        ("1,234 5.5\n", [[1234, 5.5]]),
        ("t;x;y\n2026-01-01 00:00:00,500;1,234;0.5\n", [[1234, 0.5]]),
        ("1,234\t5,5\n", [[1.234, 5.5]]),
        ("0,123\t5,678\n", [[0.123, 5.678]]),
    ],
)
def test_commas_of_thousands(tmp_path: Path, text: str, rows: list[list[float]]) -> None:
    (tmp_path / "a.csv").write_text(text)
    samples = [sample.ravel().tolist() for sample in open_samples(tmp_path / "a.csv", (1, 2), None)]
    assert samples == [np.float32(row).tolist() for row in rows]


def test_commas_that_may_be_either(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("x\ty\n6\t7\n1,234\t5\n")
    with pytest.raises(InputError, match=r"a\.tsv:3: 1,234 may be 1234 or 1\.234 \(leave out marks of thousands"):
        open_samples(tmp_path / "a.tsv", (1, 2), None)


def test_a_list_of_files_with_numbers_for_names(tmp_path: Path) -> None:
    for name in ("0", "1"):
        np.save(tmp_path / name, np.ones((1, 2), np.float32))
        (tmp_path / f"{name}.npy").rename(tmp_path / name)
    (tmp_path / "a.txt").write_text("0 1\n1 0\n")
    assert files_of(tmp_path / "a.txt") == [tmp_path / name for name in ("a.txt", "0", "1")]


def test_a_file_a_sample_in_folders_of_classes(tmp_path: Path) -> None:
    for name in ("run", "walk"):
        (tmp_path / name).mkdir()
        for i in range(2):
            table(tmp_path / name / f"{i}.csv", VALUES[i : i + 8])
    samples = open_samples(tmp_path, (1, 8, 3), None, classes=("walk", "run"))
    assert (samples.labels, samples.labelled) == ((1, 1, 0, 0), "the names of the folders")
    np.testing.assert_array_equal(samples[3], VALUES[np.newaxis, 1:9])
    assert open_samples(tmp_path, (1, 8, 3), None).labels is None
    assert len(files_of(tmp_path)) == 4


@pytest.mark.parametrize(
    ("text", "shape", "message"),
    [
        ("1,2\n3,4\n", (1, 3, 8, 8), r"a table of 2 column\(s\); the model's input is \[1, 3, 8, 8\]"),
        ("1,2,3\n4,5,6\n", (1, 8, 3), "2 rows; the model's input takes 8"),
        ("1,2,3\n4,x,6\n", (1, 3), r"t\.csv:2: not a table of numbers: 'x' in column 2 "),
        ("x,y,activity\n1,2,run\n", (1, 3), r"t\.csv:2: .* 'run' in column 3 \('activity'\).* `label`, and leave"),
        ('x,y\n"1,5",2\n', (1, 2), r"t\.csv:2: .* '1,5' in column 1 .* part columns by semicolons"),
        ("x,y\nNA,NA\n1,2\n", (1, 2), r"t\.csv:2: not a table of numbers: 'NA' in column 1"),
        ("x,y\nm,s\n", (1, 2), r"t\.csv:2: not a table of numbers: 'm' in column 1"),
        ("1,2,3\n4,,6\n", (1, 3), r"t\.csv:2: an empty cell in column 2 "),
        ("1,2;3,4\nx;1\n", (1, 2), r"t\.csv:2: not a table of numbers: 'x' in column 1"),
        ("1,2,3\n4,5\n", (1, 3), "a row of 2 cells; the first row has 3"),
        ("1,2,3\n4,5,6,7\n", (1, 3), "a row of 4 cells; the first row has 3"),
        ("x,y,label\n1,2,0\n3,1\n", (1, 2), r"csv:3: a row of 2 cells; the header has 3"),
        ("1,2,3\n4,nan,6\n", (1, 3), "column 2 is no finite number"),
        ("1,2,1e99\n", (1, 3), "column 3 is no finite number"),
        ("a,b,c\n", (1, 3), "the table holds no numbers"),
        ("\n\n", (1, 3), "the table is empty"),
    ],
)
def test_what_is_no_table(tmp_path: Path, text: str, shape: tuple[int, ...], message: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        open_samples(tmp_path / "t.csv", shape, None)


@pytest.mark.parametrize("asked", ["step=0", "step=-1", "step=x", "step=4,hop=2", "window=9"])
def test_wrong_windows(tmp_path: Path, asked: str) -> None:
    table(tmp_path / "walk.csv", VALUES)
    with pytest.raises(InputError, match=r"not allowed|the model takes 8 rows"):
        open_samples(tmp_path / f"walk.csv@{asked}", (1, 8, 3), None)


def test_a_header_in_a_comment_names_classes_and_times(tmp_path: Path) -> None:
    """As numpy.savetxt writes it; a comment of other words is none."""
    (tmp_path / "a.csv").write_text("# by a logger\n# a, b, label\n1,2,0\n\n3,4,1\n", encoding="utf-8")
    samples = open_samples(tmp_path / "a.csv", (1, 2), None)
    assert len(samples) == 2 and list(samples.labels or ()) == [0, 1]


def test_lines_are_those_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("# by a logger\n\na,b\n1,2\n# a pause\n3,x\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"a\.csv:6"):
        open_samples(tmp_path / "a.csv", (1, 2), None)
