"""Parts that a bundle leaves out: bytes of flash on a microcontroller, and files that need them are refused."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import nets
import numpy as np
import pytest
from c_core import built
from zoo_quick import bench_module, converted

from nmpconv.exporters.c_sources import bundle
from nmpconv.file.writer import to_bytes
from nmpconv.ir import State
from nmpconv.passes.memory import plan_memory
from nmpconv.runtime.targets import INTERPRETER, needs_portable

FLASH = 20480  # bytes of the runtime for one net on a Cortex-M4
# Instructions of CMSIS-NN for fully connected layers, by board, k and channels. On rv32, and of 33 to 5, they are ours
# and up to 8 % more (33 to 5: 1 %, which a channel that is left over takes if it is computed twice).
ROWS = (
    pytest.param("mps2-an385-m0plus", 640, 128, 506689, id="640 to 128 on M0+"),
    pytest.param("mps2-an385-m0plus", 256, 10, 17100, id="256 to 10 on M0+", marks=pytest.mark.slow),
    pytest.param("mps2-an385", 100, 30, 11300, id="100 to 30 on M3", marks=pytest.mark.slow),
    pytest.param("mps2-an386", 256, 10, 5400, id="256 to 10 on M4", marks=pytest.mark.slow),
    pytest.param("mps2-an386", 33, 5, 1230, id="33 to 5 on M4"),
    pytest.param("rv32", 61, 7, 3500, id="61 to 7 on rv32", marks=pytest.mark.slow),
)
CYCLES_ON_M4 = 32000  # of 128 to 128; where rows of weights are loaded one by one, 38,100
POOL_ON_M4 = 3050  # of 16 pixels of 8 channels; where each parameter is looked for by calls, 3,160
ADD_ON_M4 = 660  # of 8 elements; where structures are cleared and copied first, 839
SLICE_ON_M4 = 780  # of 4 of 8 elements, likewise; then 964
START_ON_M4 = 9  # instructions a byte of a file of weights; where the checksum goes byte by byte, 11.9
DEPTHWISE_ON_M4 = 435000  # of CMSIS-NN for 3x3 on 32 x 32 pixels of 3 channels
AD_ON_M55 = 55800  # instructions, 10 % below CMSIS-NN's
FINE, NOT_BUILT = "0", "41"
Make = Callable[..., Path]

BENCH = bench_module("mcu_run")


@pytest.fixture
def measured(need_tool: Callable[..., str], tmp_path: Path) -> Callable[..., object]:
    need_tool("arm-none-eabi-gcc")
    need_tool("qemu-system-arm")
    return lambda board, path, cpu="": BENCH.measured(board, path, tmp_path, cpu)


@pytest.mark.slow
def test_a_small_net(measured: Callable[..., object], model: Path, need_tool: Callable[..., str]) -> None:
    """int8, on a Cortex-M4: convolution, pooling, fully connected."""
    need_tool("gcc")
    found = measured("mps2-an386", model, "M4")
    assert found.flash < 19000
    assert found.stack < 1200
    assert found.stack_create < 1800
    assert 1000 < found.instructions < 100000
    assert found.instructions < found.cycles < 2 * found.instructions


@pytest.mark.slow
@pytest.mark.zoo
@pytest.mark.parametrize(
    "name", ["mlperf_ad_autoencoder", "mlperf_ic_resnet8_nhwc", "mlperf_kws_dscnn", "mlperf_vww_mobilenet025_nchw"]
)
def test_flash_of_mlperf_tiny(name: str, zoo: Path, tmp_path: Path, measured: Callable[..., object]) -> None:
    result, _ = converted(zoo, name, "8", tmp_path, widths="strict")
    (tmp_path / "net.nmp").write_bytes(result.data)
    found = measured("mps2-an386", tmp_path / "net.nmp").flash
    least, most = INTERPRETER["cortex-m4"]  # what convert --dry-run says
    assert found < FLASH and least <= found / 1000 <= most


@pytest.mark.slow
@pytest.mark.zoo
def test_instructions_of_small_layers(zoo: Path, tmp_path: Path, measured: Callable[..., object]) -> None:
    """Ten fully connected layers, for which decoding an op counts most."""
    result, _ = converted(zoo, "mlperf_ad_autoencoder", "8", tmp_path, widths="strict")
    (tmp_path / "net.nmp").write_bytes(result.data)
    assert measured("mps3-an547", tmp_path / "net.nmp").instructions < AD_ON_M55


def fully_connected(k: int, channels: int) -> bytes:
    net = nets.Net(grid=nets.grid(8, 0))
    net.input("x", 1, k, quant=nets.grid(8, 0))
    net.const("w", np.arange(channels * k).reshape(channels, k) % 255 - 127, nets.grid(8, -7))
    net.const("b", np.arange(channels), nets.grid(8, 0))
    net.op("fully_connected", "x w b", "y")
    return to_bytes(plan_memory.run(net.graph("y")), {})


@pytest.mark.slow
@pytest.mark.parametrize(("board", "k", "channels", "most"), ROWS)
def test_instructions_of_a_row(
    board: str, k: int, channels: int, most: int, tmp_path: Path, measured: Callable[..., object]
) -> None:
    (tmp_path / "row.nmp").write_bytes(fully_connected(k, channels))
    assert measured(board, tmp_path / "row.nmp").instructions < most


@pytest.mark.slow
def test_cycles_of_a_row(tmp_path: Path, measured: Callable[..., object]) -> None:
    (tmp_path / "row.nmp").write_bytes(fully_connected(128, 128))
    assert measured("mps2-an386", tmp_path / "row.nmp", "M4").cycles < CYCLES_ON_M4


@pytest.mark.slow
def test_instructions_of_a_small_pool(tmp_path: Path, measured: Callable[..., object]) -> None:
    net = nets.Net(grid=nets.grid(8, 0))
    net.input("x", 1, 1, 16, 8, quant=nets.grid(8, 0))
    net.op("max_pool", "x", "y", kernel_h=1, kernel_w=2, stride_h=1, stride_w=2)
    (tmp_path / "pool.nmp").write_bytes(to_bytes(plan_memory.run(net.graph("y")), {}))
    assert measured("mps2-an386", tmp_path / "pool.nmp").instructions < POOL_ON_M4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op", "inputs", "most", "params"),
    [
        ("add", "x x", ADD_ON_M4, {}),
        ("sub", "x x", ADD_ON_M4, {}),
        ("slice", "x", SLICE_ON_M4, {"starts": (0, 2), "steps": (1, 1), "sizes": (1, 4)}),
    ],
)
def test_instructions_of_a_small_op(
    op: str, inputs: str, most: int, params: dict[str, object], tmp_path: Path, measured: Callable[..., object]
) -> None:
    net = nets.Net(grid=nets.grid(8, 0))
    net.input("x", 1, 8, quant=nets.grid(8, 0))
    net.op(op, inputs, "y", **params)
    (tmp_path / "op.nmp").write_bytes(to_bytes(plan_memory.run(net.graph("y")), {}))
    assert measured("mps2-an386", tmp_path / "op.nmp").instructions < most


@pytest.mark.slow
def test_instructions_of_a_start(tmp_path: Path, measured: Callable[..., object]) -> None:
    """nmp_create, which looks at each byte."""
    data = fully_connected(256, 64)
    (tmp_path / "row.nmp").write_bytes(data)
    assert measured("mps2-an386", tmp_path / "row.nmp").start < START_ON_M4 * len(data)


@pytest.mark.slow
def test_instructions_of_few_channels(tmp_path: Path, measured: Callable[..., object]) -> None:
    net = nets.Net(grid=nets.grid(8, 0))
    net.input("x", 1, 32, 32, 3, quant=nets.grid(8, 0))
    net.const("w", np.arange(27).reshape(3, 3, 3, 1), nets.grid(8, -7))
    net.const("b", np.arange(3), nets.grid(8, 0))
    net.op("conv2d", "x w b", "y", groups=3, pad_top=1, pad_left=1, pad_bottom=1, pad_right=1)
    (tmp_path / "few.nmp").write_bytes(to_bytes(plan_memory.run(net.graph("y")), {}))
    assert measured("mps2-an386", tmp_path / "few.nmp").instructions < DEPTHWISE_ON_M4


@pytest.fixture(scope="module")
def own(make: Make) -> Path:
    """int8, one 1x1 convolution of 8 channels, and what follows it."""
    return make(kernel=1)


@pytest.fixture(scope="module")
def created(
    own: Path, tmp_path_factory: pytest.TempPathFactory, need_tool: Callable[..., str]
) -> Callable[[Path], str]:
    """The status of nmp_create for a file, with the interpreter of `own`'s bundle."""
    folder = tmp_path_factory.mktemp("refused")
    for path, content in bundle({"model": own.read_bytes()}).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    sources = [*sorted((folder / "src").rglob("*.c")), Path(__file__).with_name("refused.c")]
    program = built([need_tool("gcc", "clang"), "-std=c11", "-O0", f"-I{folder / 'src'}", *sources], folder / "refused")
    return lambda file: subprocess.run([program, file], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"bits": "16"}, id="int16"),
        pytest.param({"kernel": 3}, id="a window"),
        pytest.param({"channels": 16}, id="a longer sum"),
    ],
)
def test_what_is_left_out_is_refused(
    other: dict[str, int | str], make: Make, own: Path, created: Callable[[Path], str]
) -> None:
    assert created(own) == FINE
    assert created(make(**{"kernel": 1, **other})) == NOT_BUILT


def test_states_are_left_out_where_there_are_none(tmp_path: Path, own: Path, created: Callable[[Path], str]) -> None:
    net = nets.Net(grid=nets.grid(8, 0))
    net.input("s", 1, 8, quant=nets.grid(8, 0))
    net.const("w", np.eye(8), nets.grid(8, 0))
    net.const("b", np.full(8, 1), nets.grid(8, 0))
    net.op("fully_connected", "s w b", "y")
    graph = net.graph("y")
    for states, status in (({}, FINE), ({"s": State("y", 0)}, NOT_BUILT)):
        (tmp_path / "m.nmp").write_bytes(to_bytes(plan_memory.run(replace(graph, states=states)), {}))
        assert created(tmp_path / "m.nmp") == status
    built = bundle({"model": (tmp_path / "m.nmp").read_bytes()})["src/base/build.h"].decode()
    assert "#define NMP_STATES 1\n" in built
    assert "#define NMP_STATES 0\n" in bundle({"model": own.read_bytes()})["src/base/build.h"].decode()


def one_conv(bits: int, k: int, shift: int, bias: int = 2**20, *, groups: int = 1) -> bytes:
    """A 1 x k convolution of 8 channels over one row; shift: of its sums. Its biases have 32 bits."""
    net = nets.Net(grid=nets.grid(bits, shift))
    net.input("x", 1, 1, k, 8, quant=nets.grid(bits, 0))
    net.const("w", np.ones((8, 1, k, 8 // groups)), nets.grid(bits, 0))
    net.const("b", np.full(8, bias), nets.grid(32, shift))
    net.op("conv2d", "x w b", "y", groups=groups)
    return to_bytes(nets.placed(net.graph("y")), {})


@pytest.mark.parametrize(
    ("portable", "fits"),
    [
        ((8, 9, -1, 2**31 - 2**15 + 1), (8, 9, -1, 2**31 - 2**15)),  # or a bias brings back what is saturated
        ((8, 9, -1, 2**15 - 2**31 - 1), (8, 9, 0, 2**15 - 2**31 - 1)),  # by a shift to the left
        ((16, 2**7, 9), (16, 2**7 - 1, 9)),  # int16: k * 8 products below 2^(shift + 1)
        ((16, 1, -1), (16, 1, 4)),
    ],
)
def test_portable_convolutions_are_left_out_where_vectors_do_all(
    portable: tuple[int, ...], fits: tuple[int, ...]
) -> None:
    for case, wanted in ((portable, True), (fits, False)):
        data = one_conv(*case)
        assert needs_portable(data, "cortex-m55") is wanted
        assert f"#define NMP_CONV_HARD {wanted:d}\n" in bundle({"model": data})["src/base/build.h"].decode()


def test_depthwise_sums_of_many_taps_are_portable() -> None:
    assert needs_portable(one_conv(8, 257, 4, groups=8), "cortex-m55")
    assert not needs_portable(one_conv(8, 256, 4, groups=8), "cortex-m55")
    assert needs_portable(one_conv(16, 9, 8, groups=8), "cortex-m55")
    assert not needs_portable(one_conv(16, 9, 9, groups=8), "cortex-m55")
