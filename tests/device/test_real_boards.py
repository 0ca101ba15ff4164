"""Images for boards that one can buy. No test has them on hardware: they run on chips that `chips` describes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from chips import ERROR, Chip, Esp32c3, Nrf52840, Rp2040, Rp2350
from stm32 import Stm32f446

from nmpconv.device import protocol
from nmpconv.device.client import Device
from nmpconv.device.protocol import Type
from nmpconv.runtime import on_device
from nmpconv.runtime.interpreter import Net

pytestmark = pytest.mark.slow  # for the compiling

CHIPS = [Nrf52840, Stm32f446, Rp2040, Rp2350, Esp32c3]
FEW = "fully_connected"  # ops: what is tested here is not in them


@pytest.fixture(params=CHIPS, ids=lambda chip: chip.board)
def chip(request: pytest.FixtureRequest, firmware: Callable[..., Path], need_package: Callable[..., None]) -> Chip:
    need_package("unicorn")
    return request.param(firmware(request.param.board, FEW))


@pytest.mark.parametrize("board", [chip.board for chip in CHIPS])
def test_all_ops_fit(board: str, firmware: Callable[..., Path]) -> None:
    """The firmware that `device build` compiles by default."""
    assert firmware(board).is_file()


def test_a_model_on_it(chip: Chip, model: bytes, net: Net, inputs: Sequence[np.ndarray]) -> None:
    """Upload at a faster rate, then the same bytes as here; all that firmware did before, the chip allows."""
    assert abs(chip.rate / 115200 - 1) < 0.01
    device = Device(chip)
    assert device.hello.board == chip.board
    assert getattr(chip, "hz", device.hello.clock_hz) == device.hello.clock_hz
    assert abs(chip.rate / 115200 - 1) < 0.01
    device._link.ask(Type.SPEED, protocol.numbers(1000000))
    on_device.load(device, net, model)
    on_device.verify(device, net, inputs)
    assert abs(chip.rate / 1000000 - 1) < 0.01
    assert chip.errors == []
    chip.hear([ERROR] * 16)  # what a host at the first rate looks like
    assert abs(chip.rate / 115200 - 1) < 0.01
    assert device._link.ask(Type.HELLO, quiet=1.0)


def test_a_pll_that_does_not_lock(
    firmware: Callable[..., Path], need_package: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock stays, the line works, and the board says at what it runs."""
    need_package("unicorn")
    monkeypatch.setattr(Stm32f446, "locks", False)
    chip = Stm32f446(firmware(Stm32f446.board, FEW))
    assert Device(chip).hello.clock_hz == chip.hz == 16e6
    assert abs(chip.rate / 115200 - 1) < 0.01
    assert chip.errors == []
