"""Files that stop at one guard each: both verifiers say so, with its status, and C names the rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import nets
import numpy as np
import pytest
from fuzz_inputs.guards import GROUPS, Guard
from verified import OWN, Status, aligned, in_c, in_python, inspected, verified

from nmpconv import _nmp
from nmpconv.file import flatbuffer
from nmpconv.file.writer import to_bytes


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.__name__)
def test_refused(group: Callable[[], Iterator[Guard]]) -> None:
    """All files of a group: they take seconds to make, which each worker would spend on names of items."""
    for name, data, status, rule in group():
        assert in_c(data) == (status, rule), name
        if status:
            with pytest.raises(_nmp.Fault) as caught:
                inspected(data)
            value, allowed = caught.value.args[3:5]
            assert value != allowed or value == 0, name  # 0: the rule is about no number
        assert in_python(data) == (Status.OK if rule in OWN else status), name


def test_more_bytes_than_32_bits_hold() -> None:
    """Nothing but the identifier of so long a file is read."""
    data = np.zeros(2**31 + 64, np.uint8)
    data = data[-data.ctypes.data % 64 :][: 2**31]
    data[4:8] = list(b"NMP1")
    with pytest.raises(_nmp.Fault) as caught:
        _nmp.inspect(data)
    assert (caught.value.args[0], caught.value.args[2]) == (Status.LIMIT, "bytes of the file")
    assert in_python(data.data) == Status.LIMIT


def test_the_largest_arena() -> None:
    root = flatbuffer.unpack(to_bytes(nets.small_net(), {}))
    root["arena_bytes"] = 2**31 - 1
    assert verified(flatbuffer.pack(root))[0] == Status.OK


def test_more_threads_than_63_bits_hold() -> None:
    with pytest.raises(_nmp.Fault) as caught:
        _nmp.inspect(aligned(to_bytes(nets.small_net(), {})), threads=2**63)
    assert caught.value.args[2:5] == ("threads", 2**63 - 1, _nmp.THREADS_MAX)
