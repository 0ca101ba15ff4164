"""Writing and reading: what goes in comes out, the same bytes every time, and no half file anywhere."""

from __future__ import annotations

import errno
import fcntl
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import nets
import numpy as np
import pytest
from verified import Status, in_c, verified

from nmpconv.base import files
from nmpconv.base.files import check_folder, check_output, read_file, write_file, write_folder
from nmpconv.errors import InputError, ModelError, OutputError
from nmpconv.file import flatbuffer, reader
from nmpconv.file.writer import to_bytes
from nmpconv.ir import Preprocess, Shifts

VECTORS = [([bytes(32)], [bytes(6)]), ([bytes(range(32))], [b"abcdef"])]
META = {"producer": "test", "a": "ü"}


@pytest.fixture
def data() -> bytes:
    return to_bytes(nets.small_net(), META, VECTORS)


def test_constants_that_are_alike_are_one_tensor() -> None:
    """The name alone may differ; other data, or another grid, is another tensor."""
    graph = nets.small_net()
    w, node = graph["w"], next(node for node in graph.nodes if "w" in node.inputs)
    assert w.quant is not None and w.data is not None
    coarser = replace(w.quant, exponents=tuple(e + 1 for e in w.quant.exponents))
    for twin, tensors in (
        (replace(w, name="w2"), 11),
        (replace(w, name="w2", data=w.data + np.int8(w.data.min() < 0) - np.int8(w.data.min() >= 0)), 12),
        (replace(w, name="w2", quant=coarser), 12),
    ):
        again = replace(node, name="again", inputs=tuple("w2" if n == "w" else n for n in node.inputs), outputs=("z",))
        z = replace(graph[node.outputs[0]], name="z", offset=1024)
        both = replace(graph, nodes=(*graph.nodes, again), values={**graph.values, "w2": twin, "z": z})
        file = flatbuffer.unpack(to_bytes(both, {}))
        assert len(file["tensors"]) == tensors + 1
        weights = [file["ops"][i]["inputs"][1] for i in (graph.nodes.index(node), -1)]
        assert len({*weights}) == tensors - 10


def test_everything_comes_back(data: bytes) -> None:
    graph, model = nets.small_net(), reader.read(data)
    assert (model.version, model.name, model.file_bytes) == ((1, 0), "small", len(data))
    assert [t.name for t in model.tensors] == ["x", "w", "b", "c", "k", "a", "m", "f", "v", "d", "y"]
    for t in model.tensors:
        value = graph[t.name]
        assert value.quant is not None
        assert (t.shape, t.dtype, t.exponents, t.axis) == (
            value.shape,
            value.dtype,
            value.quant.exponents,
            value.quant.axis,
        )
        assert (t.clip_min, t.clip_max, t.offset, t.nbytes) == (
            value.quant.lo,
            value.quant.hi,
            value.offset,
            value.nbytes,
        )
        assert (t.data is None) == (value.data is None)
        if t.data is not None:
            np.testing.assert_array_equal(t.data, value.data)
    c = model.tensors[3]
    assert (c.observed_min, c.observed_max, c.method) == (-0.5, 6.25, "mse")
    assert model.tensors[5].method is None
    assert [op.kind for op in model.ops] == [node.op for node in graph.nodes]
    assert model.ops[0].params["pad_top"] == 1
    assert model.ops[3].params == {"shape": (1, 8)}
    assert [op.inputs for op in model.ops] == [(0, 1, 2), (3, 4), (5,), (6,), (7, 8, 9)]
    port = model.inputs[0]
    assert (port.name, port.tensor, port.pixels, port.source_shape) == ("x", 0, True, (1, 2, 4, 4))
    assert port.preprocess == graph.preprocess["x"]
    assert model.outputs[0].preprocess is None
    assert (model.labels, model.metadata) == (("cat", "dog", "emu"), META)
    assert model.test_vectors == tuple((tuple(x), tuple(y)) for x, y in VECTORS)
    assert model.arena_bytes == 80


def test_defaults_of_preprocess_survive() -> None:
    """A value that is the schema's default is absent in the file and still comes back."""
    graph = nets.small_net()
    given = Preprocess(pad=0, layout="nhwc")
    model = reader.read(to_bytes(replace(graph, preprocess={"x": given}), {}))
    assert model.inputs[0].preprocess == given


def test_same_graph_same_bytes(data: bytes) -> None:
    shuffled = nets.small_net()
    shuffled = replace(shuffled, values=dict(reversed(list(shuffled.values.items()))))
    assert to_bytes(shuffled, dict(reversed(list(META.items()))), VECTORS) == data


def test_constants_are_aligned(data: bytes) -> None:
    for t in reader.read(data).tensors:
        if t.data is not None:
            start = t.data.__array_interface__["data"][0] - np.frombuffer(data, np.uint8).__array_interface__["data"][0]
            assert start % flatbuffer.DATA_ALIGN == 0, t.name


def test_pack_and_unpack_are_inverse(data: bytes) -> None:
    assert flatbuffer.pack(flatbuffer.unpack(data)) == data


def test_pack_refuses_unknown_and_missing_fields() -> None:
    with pytest.raises(ValueError, match="Model has no field colour"):
        flatbuffer.pack({"colour": 1})
    with pytest.raises(ValueError, match="Model needs tensors"):
        flatbuffer.pack({"major": 1})


def test_an_unknown_optional_field_is_ignored(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of a later minor version: the field is appended to the schema, written, and read without it."""
    appended = flatbuffer.Field("mood", 13, "string", "string", 0, False)
    with monkeypatch.context() as patch:
        patch.setitem(flatbuffer.TABLES, "Model", (*flatbuffer.TABLES["Model"], appended))
        later = flatbuffer.pack({**flatbuffer.unpack(data), "minor": 1, "mood": "good"})
    assert b"good" in later
    assert reader.read(later).version == (1, 1)
    assert reader.read(later).tensors[0].name == "x"


def test_reader_says_what_is_wrong(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.nmp"
    with pytest.raises(InputError, match=r"m\.nmp: cannot be read: No such file"):
        reader.read(path)
    path.write_bytes(b"PK\x03\x04 something else")
    with pytest.raises(ModelError, match=r"m\.nmp: this is not a \.nmp file"):
        reader.read(path)
    path.write_bytes(data[:-1])
    with pytest.raises(ModelError, match="checksum differs: the file is damaged or truncated"):
        reader.read(path)
    with pytest.raises(ModelError, match=r"has format version 2\.3, this program reads 1\.x"):
        reader.read(flatbuffer.pack({**flatbuffer.unpack(data), "major": 2, "minor": 3}))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("layout", "auto"),
        ("channel_order", "cmyk"),
        ("resize", "\x1b[2J"),
        ("mean", (0.0, 0.0, 0.0)),
        ("mean", (math.nan,)),
        ("std", (0.0,)),
        ("range", (0.0,)),
        ("range", (0.0, math.inf)),
        ("crop", 1.5),
        ("pad", 256),
    ],
)
def test_preprocessing_is_verified(field: str, value: object) -> None:
    given = replace(Preprocess(), **{field: value})
    with pytest.raises(ModelError, match=f"port 'x' has a preprocessing with {field}"):
        reader.read(to_bytes(replace(nets.small_net(), preprocess={"x": given}), {}))


@pytest.mark.parametrize("shape", [(1, 2, 4), (1, -2, -4, 4), (2**31 - 1, 2**31 - 1)])
def test_source_shapes_are_verified(shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match="port 'x' has the source shape"):
        reader.read(to_bytes(replace(nets.small_net(), source_shapes={"x": shape}), {}))


@pytest.mark.parametrize(
    ("tensor", "fields", "message"),
    [
        ("m", {"origin": float("nan")}, "tensor 'm' has the origin nan"),
        ("m", {"origin": float("inf")}, "tensor 'm' has the origin inf"),
        ("w", {"origin": 1.0}, "tensor 'w' has the origin 1.0"),
        ("c", {"observed_max": float("nan")}, "tensor 'c' was observed from -0.5 to nan"),
        ("c", {"observed_min": 7.0}, "tensor 'c' was observed from 7.0 to 6.25"),
    ],
)
def test_facts_for_people_are_verified(tensor: str, fields: dict[str, float], message: str) -> None:
    """Reports, bundles and exports compute with them; the interpreter does not, and takes the file."""
    root = flatbuffer.unpack(to_bytes(nets.small_net(), {}))
    next(table for table in root["tensors"] if table["name"] == tensor).update(fields)
    data = flatbuffer.pack(root)
    assert in_c(data) == (Status.OK, "")
    with pytest.raises(ModelError, match=re.escape(message)):
        reader.read(data)


@pytest.mark.parametrize("vector", [([bytes(31)], [bytes(6)]), ([bytes(32)], []), ([bytes(32)] * 2, [bytes(6)])])
def test_test_vectors_are_verified(vector: tuple[list[bytes], list[bytes]]) -> None:
    with pytest.raises(ModelError, match="a test vector has"):
        reader.read(to_bytes(nets.small_net(), {}, [vector]))


def test_only_regular_files_of_a_bounded_size(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a regular file"):
        read_file("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is not a regular file"):
        read_file(tmp_path / "pipe")
    with pytest.raises(InputError, match="no file can have this name"):
        read_file("a\0b")
    (tmp_path / "ten").write_bytes(bytes(10))
    assert read_file(tmp_path / "ten", 10) == bytes(10)
    with pytest.raises(InputError) as refused:
        read_file(tmp_path / "tenn")
    assert refused.value.hint == "did you mean 'ten'?"
    with pytest.raises(InputError, match="has 10 bytes; at most 9 can be read"):
        read_file(tmp_path / "ten", 9)


def test_a_hint_for_a_tilde_gives_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No user has the name: the nearest file is named, as for any other path."""
    monkeypatch.setenv("HOME", str(tmp_path / "a"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "~backup1.npy").touch()
    assert files.place("~/m.npy").endswith(f"give {tmp_path}/a/m.npy")
    assert files.place("~backup.npy") == f"did you mean '~backup1.npy'? the current folder is {tmp_path}"


def test_what_a_killed_call_left_is_removed(tmp_path: Path) -> None:
    """By the next one for the same path; what another process holds, or is for another path, stays."""
    path = tmp_path / "m.nmp"
    script = (
        "import os, sys; from pathlib import Path; from nmpconv.base.files import read_file, write_file\n"
        "os.fsync = lambda handle: os.kill(os.getpid(), 9)\n"
        "write_file(Path(sys.argv[1]), b'half')"
    )
    for name in ("m.nmp", "other.nmp"):
        subprocess.run([sys.executable, "-c", script, str(tmp_path / name)], check=False)
    assert len(os.listdir(tmp_path)) == 2
    write_file(path, b"new")
    left = [name for name in os.listdir(tmp_path) if name != "m.nmp"]
    assert path.read_bytes() == b"new" and len(left) == 1
    with (tmp_path / left[0]).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        write_file(tmp_path / "other.nmp", b"new")
        assert left[0] in os.listdir(tmp_path)
    write_file(tmp_path / "other.nmp", b"newer")
    assert sorted(os.listdir(tmp_path)) == ["m.nmp", "other.nmp"]


def test_long_names_and_links(tmp_path: Path) -> None:
    long = tmp_path / ("n" * 250)
    write_file(long, b"x")
    assert long.read_bytes() == b"x"
    (tmp_path / "link").symlink_to("target")
    write_file(tmp_path / "link", b"behind")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"behind"


def test_write_file_replaces_whole(tmp_path: Path) -> None:
    path = tmp_path / "m.nmp"
    write_file(path, b"old")
    write_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["m.nmp"]
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "m.nmp"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, step, full)
    with pytest.raises(OutputError, match=r"m\.nmp: cannot write: No space left on device"):
        write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["m.nmp"]
    with pytest.raises(OutputError, match=r"new/a\.c: cannot write: No space left on device"):
        write_folder(tmp_path / "new", {"a.c": b""})


def test_a_folder_that_takes_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    for check, path in ((check_output, tmp_path / "m.nmp"), (check_folder, tmp_path / "new" / "sub")):
        with pytest.raises(OutputError, match=rf"{path.name}: the folder {tmp_path} cannot be written to"):
            check(path)


@pytest.mark.parametrize("check", [check_output, check_folder])
def test_a_link_is_written_to_where_it_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: Callable[[Path], None]
) -> None:
    """The folder of the link takes no files, and need not; that of its target has to."""
    locked, free = tmp_path / "locked", tmp_path / "free"
    for folder, other in ((locked, free), (free, locked)):
        folder.mkdir()
        (folder / "link").symlink_to(other / "target")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != locked)
    check(locked / "link")
    with pytest.raises(OutputError, match=rf"free/link: the folder {locked} cannot be written to"):
        check(free / "link")


def test_a_link_to_a_folder_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("no/m.nmp")
    with pytest.raises(OutputError, match=rf"link: the folder {tmp_path / 'no'} does not exist"):
        check_output(tmp_path / "link")


@pytest.mark.parametrize("call", ["open", "mkdir"])
def test_ctrl_c_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """As soon as the temporary file or folder is there."""
    create = getattr(os, call)

    def interrupted(*args: Any, **kwargs: Any) -> None:
        create(*args, **kwargs)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, call, interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "a", b"a") if call == "open" else write_folder(tmp_path / "a", {"b": b"b"})
    assert os.listdir(tmp_path) == []


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"m\.nmp: the folder .*no does not exist"):
        write_file(tmp_path / "no" / "m.nmp", b"")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_list_is_as_long_as_its_lines(end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LINES_MAX", 3)
    path = tmp_path / "list.txt"
    path.write_bytes(f"a{end}{end}c{end}".encode())
    assert files.read_lines(path, "list") == ["a", "", "c"]
    path.write_bytes(f"a{end}{end}c{end}d{end}".encode())
    with pytest.raises(InputError, match="4 lines; at most 3"):
        files.read_lines(path, "list")


def test_a_grid_of_the_float_model_for_all_of_a_tensor() -> None:
    graph = nets.small_net()
    shifts = Shifts((-3,), None, (0.5,))
    data = to_bytes(graph.with_values(replace(graph["x"], shifts=shifts)), {})
    assert verified(data) == (Status.OK, "")
    [x, *_] = reader.read(data).tensors
    assert x.shifts == shifts


def test_a_grid_of_the_float_model_for_each_of_many_channels() -> None:
    """More numbers than a tensor has steps of verification by itself."""
    net = nets.Net(grid=nets.grid(8, 0))
    net.input("x", 1, 40)
    net.op("requantize", "x", "y", quant=nets.grid(8, 1))
    graph = net.graph("y")
    shifts = Shifts(tuple(range(-20, 20)), 1)
    data = to_bytes(nets.placed(graph.with_values(replace(graph["x"], shifts=shifts))), {})
    assert verified(data) == (Status.OK, "")
    assert reader.read(data).tensors[0].shifts == shifts
