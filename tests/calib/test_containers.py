"""Archives of samples, files of arrays by name, lists of files and classes, and what is untrusted about them."""

from __future__ import annotations

import io
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nmpconv.conversion.inputs import _by_name
from nmpconv.data import archives
from nmpconv.data.samples import open_samples
from nmpconv.errors import InputError, UsageError
from nmpconv.ir import Preprocess

SHAPE, PRE = (1, 3, 4, 4), Preprocess()
PIXELS = np.random.default_rng(0).integers(0, 256, (4, 4, 4, 3)).astype(np.uint8)


def png(i: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(PIXELS[i]).save(buffer, "PNG")
    return buffer.getvalue()


def zipped(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def tarred(path: Path, files: dict[str, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


WAYS: dict[str, Callable[[Path, dict[str, bytes]], Path]] = {
    "a.zip": zipped,
    "a.tar": tarred,
    "a.tar.gz": lambda path, files: tarred(path, files, "w:gz"),
    "a.tgz": lambda path, files: tarred(path, files, "w:gz"),
    "a.tar.xz": lambda path, files: tarred(path, files, "w:xz"),
}


@pytest.mark.parametrize("name", WAYS)
def test_an_archive_is_read_as_a_folder(tmp_path: Path, name: str) -> None:
    files = {"set/1/b.png": png(1), "set/0/a.png": png(0), "__MACOSX/._x.png": b"", "set/readme.md": b"# hello"}
    samples = open_samples(WAYS[name](tmp_path / name, files), SHAPE, PRE)
    assert (samples.labels, samples.labelled) == ((0, 1), "the names of the folders")
    assert samples.paths == [f"{tmp_path / name}:set/0/a.png", f"{tmp_path / name}:set/1/b.png"]
    np.testing.assert_array_equal(np.stack(list(samples)), PIXELS[:2])
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_labels_and_arrays_in_an_archive(tmp_path: Path) -> None:
    files = {"d/labels.csv": b"path,class\nx/a.png,bee\nb.png,ant\n", "d/x/a.png": png(0), "d/b.png": png(1)}
    found = open_samples(zipped(tmp_path / "a.zip", files), SHAPE, PRE, classes=("ant", "bee"))
    assert found.labels == (0, 1)
    assert found.labelled.endswith("a.zip:d/labels.csv")
    buffer = io.BytesIO()
    np.save(buffer, np.ones((3, 4, 4), np.float32))
    assert open_samples(zipped(tmp_path / "n.zip", {"x.npy": buffer.getvalue()}), SHAPE, None)[0].sum() == 48
    tables = {"1.csv": b"1,2\n3,4\n", "2.csv": b"5,6\n7,8\n"}
    assert open_samples(tarred(tmp_path / "t.tar", tables), (1, 2, 2), None)[1].tolist() == [[[5, 6], [7, 8]]]


def test_paths_and_links_in_an_archive_lead_nowhere(tmp_path: Path) -> None:
    """They are names; nothing is written, and of links that is said."""
    (tmp_path / "in").mkdir()
    secret = tmp_path / "secret.png"
    secret.write_bytes(png(3))
    path = tarred(tmp_path / "in" / "a.tar", {"../../evil.png": png(0), "/abs.png": png(1)})
    with tarfile.open(path, "a") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE):
            info = tarfile.TarInfo("link.png")
            info.type, info.linkname = kind, str(secret)
            archive.addfile(info)
    samples = open_samples(path, SHAPE, PRE)
    np.testing.assert_array_equal(np.stack(sorted(samples, key=lambda x: x.sum())), sorted(PIXELS[:2], key=np.sum))
    assert samples.remarks == (f"{path}: 3 links in it are left out",)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a.tar", "in", "secret.png"]
    link = zipfile.ZipInfo("link.png")
    link.create_system, link.external_attr = 3, 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "l.zip", "w") as archive:
        archive.writestr(link, str(secret))
    with pytest.raises(InputError, match="no samples in the archive"):
        open_samples(tmp_path / "l.zip", SHAPE, PRE)


def test_bombs_are_refused_before_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = bytes(1 << 20)
    monkeypatch.setattr(archives, "MEMBER_MAX", 1 << 16)
    samples = open_samples  # both: a member whose size is told, and the sum of many
    for path in (zipped(tmp_path / "b.zip", {"a.png": bomb}), tarred(tmp_path / "b.tgz", {"a.png": bomb}, "w:gz")):
        with pytest.raises(InputError, match="has 1048576 bytes; at most 65536 can be read"):
            samples(path, SHAPE, PRE)[0]
    monkeypatch.setattr(archives, "MEMBER_MAX", 1 << 28)
    monkeypatch.setattr(archives, "HELD_MAX", 3 << 20)
    many = tarred(tmp_path / "m.tar.gz", {f"{i}.png": bomb for i in range(4)}, "w:gz")
    with pytest.raises(InputError, match="its files have more than 3145728 bytes"):
        samples(many, SHAPE, PRE)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x1f\x8b\x08nonsense"])
@pytest.mark.parametrize("name", WAYS)
def test_what_is_no_archive(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=r"not a readable archive|no samples in the archive"):
        open_samples(tmp_path / name, SHAPE, PRE)


def test_a_member_that_lies_about_its_bytes(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {"a.png": png(0)})
    data = bytearray(path.read_bytes())
    data[40] ^= 0xFF  # of what is compressed
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"a\.zip:a\.png: (cannot be read|not a readable image)"):
        open_samples(path, SHAPE, PRE)[0]


@pytest.mark.parametrize(
    "text", ["path,class\na.png,1\nb.png,0\n", "a.png,1\nb.png,0\n", "filename,x,Target\na.png,,1\nb.png,,0\n"]
)
def test_lists_as_people_write_them(tmp_path: Path, text: str) -> None:
    for i, name in enumerate("ab"):
        (tmp_path / f"{name}.png").write_bytes(png(i))
    (tmp_path / "l.csv").write_text(text)
    assert open_samples(tmp_path / "l.csv", SHAPE, PRE).labels == (1, 0)


@pytest.mark.parametrize("between", [" ", "\t", ","])
def test_a_text_list_with_labels(tmp_path: Path, between: str) -> None:
    for i, name in enumerate("ab"):
        (tmp_path / f"{name}.png").write_bytes(png(i))
    (tmp_path / "val.txt").write_text(f"a.png{between}bee\nb.png{between}0\n")
    assert open_samples(tmp_path / "val.txt", SHAPE, PRE, classes=("ant", "bee")).labels == (1, 0)
    (tmp_path / "val.txt").write_text(f"a.png{between}1\nb.png\n")
    with pytest.raises(InputError, match="a line without a label"):
        open_samples(tmp_path / "val.txt", SHAPE, PRE)


def test_one_npz_for_several_inputs(tmp_path: Path) -> None:
    left, right = np.zeros((2, 3), np.float32), np.ones((2, 5), np.float32)
    np.savez(tmp_path / "a.npz", left=left, right=right, y=np.array([1, 0]))
    data = _by_name({"": tmp_path / "a.npz"}, ["left", "right"], ())
    assert dict(data) == {"left": tmp_path / "a.npz", "right": tmp_path / "a.npz"}
    samples = open_samples(tmp_path / "a.npz", (1, 5), None, input_name="right")
    assert (samples.labels, samples[1].tolist()) == ((1, 0), [[1.0] * 5])
    with pytest.raises(InputError, match=r"a\.npz: no array for 'middle'; it has left, right, y"):
        _by_name({"": tmp_path / "a.npz"}, ["left", "middle"], ())
    np.save(tmp_path / "a.npy", left)
    with pytest.raises(UsageError, match="several inputs"):
        _by_name({"": tmp_path / "a.npy"}, ["left", "middle"], ())


@pytest.mark.parametrize(("suffix", "package"), [("pt", "torch"), ("h5", "h5py")])
def test_a_package_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    path = tmp_path / f"x.{suffix}"
    path.write_bytes(b"no such file")
    with pytest.raises(UsageError, match=rf"\.{suffix} needs {package}, which is not installed"):
        open_samples(path, (1, 3), None)


def test_files_of_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="hundreds of MB that no lock has")
    (tmp_path / "x.pt").write_bytes(b"no file of torch")
    with pytest.raises(InputError, match=r"not a readable \.pt file"):
        open_samples(tmp_path / "x.pt", (1, 3), None)
    x, y = torch.ones(4, 3), torch.tensor([0, 1, 2, 0])
    for saved in ((x, y), {"x": x, "y": y}, [(row, label) for row, label in zip(x, y, strict=True)]):
        torch.save(saved, tmp_path / "x.pt")
        assert open_samples(tmp_path / "x.pt", (1, 3), None, input_name="x").labels == (0, 1, 2, 0)


def test_files_of_hdf5(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="the extra test has it")
    (tmp_path / "x.h5").write_bytes(b"no file of HDF5")
    with pytest.raises(InputError, match="not a readable HDF5 file"):
        open_samples(tmp_path / "x.h5", (1, 3), None)
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["x"] = np.ones((4, 3))
    with h5py.File(tmp_path / "d.h5", "w") as file:
        file["x"], file["label"] = np.arange(12.0).reshape(4, 3), np.array([0, 1, 2, 0])
        file["elsewhere"] = h5py.ExternalLink(str(tmp_path / "secret.h5"), "x")
    with h5py.File(tmp_path / "groups.h5", "w") as file:
        file["train/x"] = np.ones((4, 3))
    with pytest.raises(InputError, match=r"no array at its top, where it has train .*h5py\.File\(PATH\)"):
        open_samples(tmp_path / "groups.h5", (1, 3), None)
    samples = open_samples(tmp_path / "d.h5", (1, 3), None)
    assert (samples.labels, samples[1].tolist()) == ((0, 1, 2, 0), [[3, 4, 5]])
    with h5py.File(tmp_path / "e.h5", "w") as file:
        file.create_dataset("x", (4, 3), "f4", external=[(str(tmp_path / "secret.h5"), 0, 48)])
    with pytest.raises(InputError, match="lies in another file"):
        open_samples(tmp_path / "e.h5", (1, 3), None)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_are_turned_as_exif_says(tmp_path: Path, orientation: int) -> None:
    """A wide picture that a camera saved in each of eight ways is the same picture."""
    wide = np.random.default_rng(1).integers(0, 256, (4, 6, 3)).astype(np.uint8)
    saved = {
        1: wide,
        2: wide[:, ::-1],
        3: wide[::-1, ::-1],
        4: wide[::-1],
        5: wide.transpose(1, 0, 2),
        6: np.rot90(wide, 1),
        7: wide[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(wide, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(np.ascontiguousarray(saved)).save(tmp_path / "a.png", exif=exif)
    samples = open_samples(tmp_path / "a.png", (1, 3, 4, 6), PRE)
    np.testing.assert_array_equal(samples[0], wide)
    told = ("1 of 1 images are turned as their EXIF orientation says",)
    assert samples.remarks == (told if orientation > 1 else ())


def test_alpha_is_dropped_and_said(tmp_path: Path) -> None:
    Image.fromarray(np.dstack([PIXELS[0], np.zeros((4, 4), np.uint8)])).save(tmp_path / "a.png")
    samples = open_samples(tmp_path, SHAPE, PRE)
    np.testing.assert_array_equal(samples[0], PIXELS[0])
    assert "1 of 1 images have an alpha channel, which is dropped" in samples.remarks[0]
