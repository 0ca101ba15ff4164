"""The adapter of Model Explorer, by its extension interface (`model_explorer.Adapter`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import model_explorer

from nmpconv.errors import NmpError
from nmpconv.explorer import nodes


class NmpAdapter(model_explorer.Adapter):  # type: ignore[misc]  # it has no types
    """Adapter of .nmp files."""

    metadata = model_explorer.AdapterMetadata(
        id="nmpconv",
        name="nmpconv",
        description="Integer CNNs of nmpconv: grids, weights, memory plan, SQNR",
        source_repo="https://pypi.org/project/nmpconv",
        fileExts=["nmp"],
    )

    def convert(self, model_path: str, settings: Mapping[str, Any]) -> model_explorer.ModelExplorerGraphs:
        """One graph. settings: `const_element_count_limit` is how many elements of a constant are shown, -1 being all.

        Raises RuntimeError with the reason where the file is refused; Model Explorer shows it.
        """
        try:
            return {"graphs": [nodes.graph(Path(model_path), settings.get("const_element_count_limit", nodes.SHOWN))]}
        except NmpError as error:
            raise RuntimeError(str(error)) from None
