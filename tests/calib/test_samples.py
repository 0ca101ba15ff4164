"""Every kind of source gives the same samples; every bad one says what is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nmpconv.data import lists
from nmpconv.data.samples import Feeds, Samples, graph_input, open_samples
from nmpconv.data.sequences import open_frames
from nmpconv.data.sources import files_of
from nmpconv.errors import InputError
from nmpconv.ir import Preprocess

SHAPE = (1, 3, 6, 5)
PIXELS = np.random.default_rng(2).integers(0, 256, (4, 6, 5, 3), dtype=np.uint8)
ARRAYS = np.random.default_rng(3).normal(size=(4, 49, 10)).astype(np.float32)
PRE = Preprocess(mean=(127.5,), std=(127.5,))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four images a.png to d.png, and what a folder of images often holds besides."""
    for name, pixels in zip("abcd", PIXELS, strict=True):
        Image.fromarray(pixels).save(tmp_path / f"{name}.png")
    (tmp_path / "readme.md").write_text("no image")
    (tmp_path / ".hidden.png").write_text("no image")
    return tmp_path


def contents(samples: Samples) -> np.ndarray:
    return np.stack(list(samples))


def test_a_folder_is_read_in_the_order_of_names(folder: Path) -> None:
    samples = open_samples(folder, SHAPE, PRE)
    assert (samples.kind, len(samples), samples.labels) == ("image", 4, None)
    assert [Path(p).name for p in samples.paths] == ["a.png", "b.png", "c.png", "d.png"]
    assert (contents(samples) == PIXELS).all()


def test_folders_in_a_folder_are_labels_where_they_are_numbers(tmp_path: Path) -> None:
    for label in ("10", "2"):
        (tmp_path / label).mkdir()
        Image.fromarray(PIXELS[0]).save(tmp_path / label / "x.png")
    assert open_samples(tmp_path, SHAPE, PRE).labels == (10, 2)
    (tmp_path / "2").rename(tmp_path / "cat")
    assert open_samples(tmp_path, SHAPE, PRE).labels is None


@pytest.mark.parametrize(
    ("names", "classes", "scores", "labels", "source"),
    [
        ("bee ant cow", "", 3, (0, 1, 2), "the order of the folders"),
        ("bee ant cow", "", 4, None, "none; the folders are not the classes: 3 for 4 classes"),
        (
            "bee ant cow",
            "cow ant Bee",
            3,
            None,
            "none; the folders are not the classes: 'bee' is no class of the model",
        ),
        ("bee cow", "cow ant bee", 3, (2, 0), "the names of the folders"),
        ("0 180", "", 2, (0, 1), "the order of the folders"),
        ("1 2", "", 2, (1, 2), "the names of the folders"),  # --label-offset -1
        ("train val", "", 2, None, ""),
        ("bee ant", "", 0, None, ""),
    ],
)
def test_folders_one_a_class(
    tmp_path: Path, names: str, classes: str, scores: int, labels: tuple[int, ...] | None, source: str
) -> None:
    for name in names.split():
        (tmp_path / name).mkdir()
        Image.fromarray(PIXELS[0]).save(tmp_path / name / "x.png")
    samples = open_samples(tmp_path, SHAPE, PRE, classes=classes.split(), scores=scores)
    assert samples.labels == labels
    assert samples.labelled == source
    numbered = ", ".join(f"{i}: {name}" for i, name in enumerate(sorted(names.split())))
    guess = f"{tmp_path}: its folders are taken for the classes in the order of their names: {numbered}"
    assert samples.remarks == ((guess,) if "order" in source else ())


@pytest.mark.parametrize(
    ("rows", "labels", "said"),
    [
        ("a.png,3\n./b.png,1\nc.png,2\nd.png,0", (3, 1, 2, 0), "{}/labels.csv"),
        ("a.png,3\nb.png,1", None, "{}/labels.csv is not used: it has labels for 2 of 4 samples"),
        ("a.png,cat", None, "{}/labels.csv is not used: the label 'cat' is not a class number"),
        ("a.png,1\nx.png,1", None, "{}/labels.csv is not used: 1 of 2 files do not exist: line 3: x.png"),
    ],
)
def test_a_folder_with_labels(folder: Path, rows: str, labels: tuple[int, ...] | None, said: str) -> None:
    (folder / "labels.csv").write_text(f"file,label\n{rows}\n")
    samples = open_samples(folder, SHAPE, PRE)
    assert len(samples) == 4 and samples.labels == labels
    assert samples.labelled == said.format(folder)
    assert open_samples(folder / "a.png", SHAPE, PRE).labelled == ""
    assert files_of(folder)[-1] == folder / "labels.csv"


def test_a_list_in_a_folder_goes_before_the_names_of_folders(tmp_path: Path) -> None:
    for name in ("0", "1"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (2, 2)).save(tmp_path / name / "x.png")
    assert open_samples(tmp_path, SHAPE, PRE).labelled == "the names of the folders"
    (tmp_path / "labels.csv").write_text("file,label\n1/x.png,5\n0/x.png,4\n")
    assert open_samples(tmp_path, SHAPE, PRE).labels == (4, 5)
    (tmp_path / "labels.csv").write_text("file\n1/x.png\n0/x.png\n")
    samples = open_samples(tmp_path, SHAPE, PRE)
    assert samples.labels == (0, 1)
    assert samples.labelled.startswith("the names of the folders; ") and samples.labelled.endswith("for 0 of 2 samples")


def test_csv_list_and_single_image(folder: Path) -> None:
    sub = folder / "lists"
    sub.mkdir()
    (sub / "l.csv").write_text("file,name,label\n../b.png,bee,7\n\n../a.png,ay,3\n")
    (sub / "l.txt").write_text("# two\n../b.png\n\n../a.png\n")
    from_csv, from_list = (open_samples(sub / f"l.{kind}", SHAPE, PRE) for kind in ("csv", "txt"))
    assert from_csv.labels == (7, 3)
    assert from_list.labels is None
    assert (contents(from_csv) == PIXELS[[1, 0]]).all()
    assert (contents(from_list) == PIXELS[[1, 0]]).all()
    assert (contents(open_samples(folder / "c.png", SHAPE, PRE)) == PIXELS[[2]]).all()


def test_a_csv_without_labels_has_none(folder: Path) -> None:
    (folder / "l.csv").write_text("file,labels\na.png,boxes.txt\n")
    assert open_samples(folder / "l.csv", SHAPE, PRE).labels is None


@pytest.mark.parametrize("shape", [(1, 49, 10), (1, 49, 10, 1)])
def test_arrays_as_npy_npz_and_folder(tmp_path: Path, shape: tuple[int, ...]) -> None:
    stack = ARRAYS.reshape(4, *shape[1:])
    np.save(tmp_path / "stack.npy", stack)
    np.save(tmp_path / "one.npy", stack[2])
    np.save(tmp_path / "batch1.npy", stack[2:3])
    np.savez(tmp_path / "only.npz", stack, labels=np.arange(4))
    np.savez(tmp_path / "named.npz", x=stack, y=stack[:1])
    (tmp_path / "many").mkdir()
    for i, array in enumerate(stack):
        np.save(tmp_path / "many" / f"{i}.npy", array.astype(np.float64))
    for source, rows in (("stack.npy", [0, 1, 2, 3]), ("one.npy", [2]), ("batch1.npy", [2]), ("many", [0, 1, 2, 3])):
        samples = open_samples(tmp_path / source, shape, None)
        assert samples.kind == "array"
        assert (contents(samples) == stack[rows][:, np.newaxis]).all()
    assert open_samples(tmp_path / "only.npz", shape, None).labels == (0, 1, 2, 3)
    assert (contents(open_samples(tmp_path / "named.npz", shape, None, input_name="x")) == stack[:, np.newaxis]).all()
    assert samples[0].dtype == np.float32


def test_inputs_that_begin_with_time_have_stacks_and_no_batch_to_leave_out() -> None:
    stack = np.zeros((3, 24, 1, 4), np.float32)
    for data in (stack, [stack], list(stack)):
        assert len(open_samples(data, (24, 1, 4), None)) == 3
    with pytest.raises(InputError, match=r"an array of shape \[1, 4\]"):
        open_samples([stack[0, 0]], (24, 1, 4), None)


def test_uint8_stacks_are_images_when_there_is_preprocessing(tmp_path: Path) -> None:
    np.save(tmp_path / "p.npy", PIXELS)
    assert (contents(open_samples(tmp_path / "p.npy", SHAPE, PRE)) == PIXELS).all()
    np.save(tmp_path / "one.npy", PIXELS[1])
    assert (contents(open_samples(tmp_path / "one.npy", SHAPE, PRE)) == PIXELS[[1]]).all()
    np.save(tmp_path / "gray.npy", PIXELS[..., 0])
    assert (contents(open_samples(tmp_path / "gray.npy", (1, 1, 6, 5), PRE)) == PIXELS[..., :1]).all()
    np.save(tmp_path / "nhwc.npy", PIXELS)
    assert open_samples(tmp_path / "nhwc.npy", (1, 6, 5, 3), None).kind == "array"
    with pytest.raises(InputError, match=r"uint8 \[6, 5, 3\] among images; uint8 \[H,W,1\]"):
        open_samples(tmp_path / "p.npy", (1, 1, 6, 5), PRE)[0]


def test_float_arrays_feed_an_image_model_as_they_are(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(2, *SHAPE[1:])).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    samples = open_samples(tmp_path / "x.npy", SHAPE, PRE)
    assert samples.preprocess is None
    assert (samples.model_input(1) == x[1:]).all()
    with pytest.raises(InputError, match="takes pixels"):
        samples.graph_input(0, pixels=True)


def test_images_without_preprocessing_get_the_layout_of_the_shape(folder: Path) -> None:
    assert open_samples(folder, (1, 6, 5, 3), None).model_input(0).shape == (1, 6, 5, 3)
    assert open_samples(folder, SHAPE, None).model_input(0).shape == SHAPE


def test_model_and_graph_inputs(folder: Path) -> None:
    samples = open_samples(folder, SHAPE, PRE)
    wanted = ((PIXELS[1] - 127.5) / 127.5).transpose(2, 0, 1)[np.newaxis]
    assert np.allclose(samples.model_input(1), wanted, atol=1e-6)
    assert (samples.graph_input(1, pixels=False) == samples.model_input(1)).all()
    pixels = samples.graph_input(1, pixels=True)
    assert pixels.dtype == np.float32
    assert (pixels[0] + 128 == PIXELS[1]).all()
    integers = graph_input(samples[1], PRE, SHAPE, pixels=True, dtype="int8")
    assert integers.dtype == np.int8
    assert (integers == pixels).all()


def test_subset_and_feeds(folder: Path) -> None:
    (folder / "l.csv").write_text("file,label\na.png,0\nb.png,1\nc.png,2\n")
    samples = open_samples(folder / "l.csv", SHAPE, PRE)
    part = samples.subset([2, 0])
    assert part.labels == (2, 0)
    assert (contents(part) == PIXELS[[2, 0]]).all()
    feeds = Feeds({"x": samples}, pixels=["x"]).subset([1, 2])
    assert len(feeds) == 2
    assert (feeds[0]["x"][0] + 128 == PIXELS[1]).all()
    assert len(list(feeds)) == 2
    with pytest.raises(InputError, match="x: 3, y: 2"):
        Feeds({"x": samples, "y": part})


def test_nothing_is_read_before_it_is_asked_for(folder: Path) -> None:
    (folder / "b.png").write_bytes(b"damaged")
    samples = open_samples(folder, SHAPE, PRE)
    assert (samples[0] == PIXELS[0]).all()
    with pytest.raises(InputError, match=r"b\.png: not a readable image"):
        samples[1]
    np.save(folder / "big.npy", ARRAYS)
    source = open_samples(folder / "big.npy", (1, 49, 10), None).source
    base = source.array(0).base
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)


def refused(
    tmp_path: Path, name: str, message: str, shape: tuple[int, ...] = SHAPE, pre: Preprocess | None = PRE
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        list(open_samples(tmp_path / name, shape, pre))
    assert name in str(caught.value)


def test_missing_and_empty_folders(tmp_path: Path) -> None:
    refused(tmp_path, "nowhere", "no such file or folder")
    (tmp_path / "empty").mkdir()
    refused(tmp_path, "empty", r"no samples in the folder, or one level deeper \(found: nothing\)")
    (tmp_path / "empty" / "a.doc").write_text("")
    (tmp_path / "empty" / "b.doc").write_text("")
    refused(tmp_path, "empty", r"\(found: 2 \.doc\)")


@pytest.mark.parametrize(
    ("name", "found", "way_out"),
    [
        ("a.HEIC", "1 .heic", "save the pictures as .png or .jpg"),
        ("a.zip", "1 .zip", "unpack the archives in it"),
        ("a", "1 without a suffix", "allowed: .bmp"),
    ],
)
def test_what_people_expect_to_be_read(tmp_path: Path, name: str, found: str, way_out: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(InputError) as refused:
        open_samples(tmp_path, SHAPE, Preprocess())
    assert found in refused.value.message and way_out in refused.value.hint


def test_pictures_that_are_left_out_are_counted(folder: Path) -> None:
    assert not open_samples(folder, SHAPE, Preprocess()).remarks
    (folder / "x.heic").write_bytes(b"x")
    assert open_samples(folder, SHAPE, Preprocess()).remarks == ("1 .heic file(s) left out: save them as .png or .jpg",)


@pytest.mark.parametrize("suffix", ["gif", "tiff", "webp"])
def test_of_animated_pictures_the_first_frame_is_taken(tmp_path: Path, suffix: str) -> None:
    frames = [Image.new("RGB", (5, 6), (level, level, level)) for level in (200, 0, 90)]
    frames[0].save(tmp_path / f"a.{suffix}", save_all=True, append_images=frames[1:])
    frames[0].save(tmp_path / f"b.{suffix}")
    samples = open_samples(tmp_path, SHAPE, Preprocess())
    assert samples.remarks == ("1 of 2 images have several frames, of which the first is taken",)
    assert np.abs(samples[0].astype(int) - 200).max() <= 2


def test_mixed_sources(folder: Path) -> None:
    (folder / "l.txt").write_text("a.png\nx.npy\n")
    np.save(folder / "x.npy", ARRAYS[0])
    refused(folder, "l.txt", "1 .npy and 1 other files")
    refused(folder, "", "4 images and 1 .npy files")
    (folder / "x.weights").write_text("")
    refused(folder, "x.weights", r"a file of type \.weights")


def test_dead_paths_are_named_by_line(folder: Path) -> None:
    (folder / "l.txt").write_text("a.png\n" + "".join(f"gone{i}.png\n" for i in range(7)))
    refused(folder, "l.txt", r"7 of 8 files do not exist: line 2: gone0.png; .*line 6: gone4.png and 2 more")
    (folder / "l.csv").write_text("file,label\na.png,0\nz.png,1\n")
    refused(folder, "l.csv", "1 of 2 files do not exist: line 3: z.png")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("l.csv", "file,label\nsub\\e.png,3\na.png,0\n"),
        ("l.csv", "sub\\e.png,3\na.png,0\n"),
        ("l.txt", "sub\\e.png 3\na.png 0\n"),
    ],
)
def test_a_list_of_windows_has_backslashes(folder: Path, name: str, text: str) -> None:
    (folder / "sub").mkdir()
    (folder / "a.png").rename(folder / "sub" / "e.png")
    Image.fromarray(PIXELS[1]).save(folder / "a.png")
    (folder / name).write_text(text)
    samples = open_samples(folder / name, SHAPE, PRE)
    assert samples.labels == (3, 0)
    np.testing.assert_array_equal(contents(samples), PIXELS[:2])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("url,label\na.png,1\n", "not a table of numbers: .*'a.png'.* a list of files has a column `file`"),
        ("", "the table is empty"),
        ("file,label\n", "names no files"),
        ("file,label\na.png,cat\n", "l.csv:2: the label 'cat' is not a class number"),
        ("file,label\na.png\n", "l.csv:2: 1 columns; the header has 2"),
    ],
)
def test_bad_csv(folder: Path, text: str, message: str) -> None:
    (folder / "l.csv").write_text(text)
    refused(folder, "l.csv", message)


def test_bad_arrays(tmp_path: Path) -> None:
    shape = (1, 49, 10)
    np.save(tmp_path / "wrong.npy", np.zeros((4, 48, 10), np.float32))
    refused(tmp_path, "wrong.npy", r"shape \[48, 10\]; the model's input is \[1, 49, 10\]", shape, None)
    holed = ARRAYS.copy()
    holed[3, 0, 0] = np.nan
    np.save(tmp_path / "nan.npy", holed)
    refused(tmp_path, "nan.npy", r"nan.npy\[3\]: the array holds NaN", shape, None)
    np.save(tmp_path / "complex.npy", ARRAYS.astype(np.complex64))
    refused(tmp_path, "complex.npy", "complex64; real numbers", shape, None)
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    refused(tmp_path, "objects.npy", "not a readable .npy file", shape, None)
    np.save(tmp_path / "none.npy", ARRAYS[:0])
    refused(tmp_path, "none.npy", r"shape \[0, 49, 10\]", shape, None)
    (tmp_path / "cut.npy").write_bytes((tmp_path / "nan.npy").read_bytes()[:200])
    refused(tmp_path, "cut.npy", "not a readable .npy file", shape, None)
    (tmp_path / "junk.npz").write_bytes(b"PK no")
    refused(tmp_path, "junk.npz", "not a readable .npz file", shape, None)
    np.savez(tmp_path / "two.npz", a=ARRAYS, b=ARRAYS)
    refused(tmp_path, "two.npz", r"2 arrays \(a, b\)", shape, None)
    np.savez(tmp_path / "labels.npz", ARRAYS, labels=np.arange(3))
    refused(tmp_path, "labels.npz", r"labels of int64 \[3\]; integers \[4\]", shape, None)


def test_images_for_a_model_without_an_image_input(folder: Path) -> None:
    with pytest.raises(InputError, match="images cannot feed a model input of shape 1x640"):
        open_samples(folder, (1, 640), None)
    with pytest.raises(InputError, match="1x4x6x5"):
        open_samples(folder, (1, 4, 6, 5), PRE)


def test_arrays_for_a_model_with_an_image_input(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", ARRAYS)
    refused(tmp_path, "x.npy", r"the model's input is \[1, 3, 6, 5\]")


def test_a_list_of_one_file_may_have_a_label(tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    (tmp_path / "list.txt").write_text("# comment\na.png 3\n")
    assert lists.of_text(tmp_path / "list.txt") == ([tmp_path / "a.png"], [3])
    (tmp_path / "list.txt").write_text("a.png\n")
    assert lists.of_text(tmp_path / "list.txt") == ([tmp_path / "a.png"], None)


@pytest.mark.parametrize("array", [np.float32(1.5), np.zeros((0, 6, 5), np.float32)])
def test_an_array_without_samples_is_refused(tmp_path: Path, array: np.ndarray) -> None:
    np.save(tmp_path / "x.npy", array)
    wanted = r"; a stack of samples is \[n, \.\.\.\]" if array.ndim == 0 else ": it holds no samples"
    with pytest.raises(InputError, match=rf"an array of shape \[.*\]{wanted}"):
        open_samples(tmp_path / "x.npy", SHAPE, None)


def test_an_array_is_a_sequence_or_a_stack_of_them() -> None:
    """By its rank: a sample without the batch, a sequence of frames, or as many."""
    frames = np.random.default_rng(1).normal(size=(3, 5, 4)).astype(np.float32)
    for data, starts in ((frames, (0, 5, 10)), (frames[0], (0,)), (frames[0, 0], (0,))):
        calls, begun = open_frames(data, (1, 4), None)
        assert begun == starts
        np.testing.assert_array_equal(calls.model_input(0).ravel(), frames[0].ravel()[: calls.model_input(0).size])


def test_samples_that_are_alike_and_do_not_fit_are_named(tmp_path: Path) -> None:
    for name, width in (("a", 5), ("b", 4), ("c", 4)):
        np.save(tmp_path / f"{name}.npy", np.zeros((3, 6, width), np.float32))
    samples = open_samples(tmp_path, SHAPE, None)
    assert samples.stack([0]).shape == (1, *SHAPE)
    with pytest.raises(InputError, match=r"b\.npy"):
        samples.stack([1, 2])


@pytest.mark.parametrize("name", ["x.csv", "x.txt"])
def test_a_name_that_no_file_can_have(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(f"{'a' * 5000}.png,1\n" * 2)
    with pytest.raises(InputError, match="aaaa"):
        open_samples(tmp_path / name, (1, 8, 8, 3), Preprocess())
