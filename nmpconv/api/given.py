"""What programs hand over in several forms: a .nmp file, and data for its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import SupportsBytes

from nmpconv.data.samples import Data
from nmpconv.files import read_file
from nmpconv.run.runtime import Net, load

NmpFile = str | Path | bytes | SupportsBytes  # the last: what `nmpconv.convert` returns


def data_of(model: NmpFile) -> bytes:
    """The bytes of a file. Raises InputError."""
    return read_file(model) if isinstance(model, str | Path) else bytes(model)


def net_of(model: NmpFile | Net, cpu: str | None, threads: int | None) -> Net:
    """A net that is loaded, or is loaded now. Raises InputError, UsageError, ModelError."""
    if isinstance(model, Net):
        return model
    return load(model if isinstance(model, str | Path) else bytes(model), cpu=cpu, threads=threads)


def sources(data: Data | Mapping[str, Data]) -> Mapping[str, Data]:
    """Data by input name; '' is the only input."""
    return data if isinstance(data, Mapping) else {"": data}
