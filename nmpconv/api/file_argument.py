"""Arguments that come in several forms: a .nmp file, and data for its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import SupportsBytes

from nmpconv.base.files import read_file
from nmpconv.data.samples import Data
from nmpconv.errors import UsageError
from nmpconv.runtime.interpreter import Net, load

NmpFile = str | Path | bytes | SupportsBytes  # the last: what `nmpconv.convert` returns


def data_of(model: NmpFile) -> bytes:
    """The bytes of a file. Raises InputError, UsageError."""
    _check(model)
    return read_file(model) if isinstance(model, str | Path) else bytes(model)


def net_of(model: NmpFile | Net, cpu: str | None, threads: int | None) -> Net:
    """A net that is loaded, or is loaded now. Raises InputError, UsageError, ModelError."""
    if isinstance(model, Net):
        return model
    _check(model)
    return load(model if isinstance(model, str | Path) else bytes(model), cpu=cpu, threads=threads)


def _check(model: object) -> None:
    if not isinstance(model, str | Path | bytes) and not hasattr(model, "__bytes__"):
        allowed = "a path, the bytes of a .nmp file, or what convert returned"
        raise UsageError(
            f"{model!r} is no model; allowed: {allowed}", where="model", found=repr(model), allowed=allowed
        )


def sources(data: Data | Mapping[str, Data]) -> Mapping[str, Data]:
    """Data by input name; '' is the only input. Raises UsageError for what is no data."""
    for one in data.values() if isinstance(data, Mapping) else [data]:
        if not hasattr(one, "__iter__") and not hasattr(one, "__getitem__") and not isinstance(one, Path):
            allowed = "a path, an array, or an iterable of samples"
            raise UsageError(
                f"{one!r} is not allowed; allowed: {allowed}",
                where="data",
                found=repr(one),
                allowed=allowed,
                hint="or a mapping of input names to these",
            )
    return data if isinstance(data, Mapping) else {"": data}
