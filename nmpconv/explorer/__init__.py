"""Adapter that opens a .nmp file in Model Explorer: ``model-explorer --extensions=nmpconv.explorer model.nmp``.

Model Explorer loads the module `main` of a package that it is told. Nothing else in nmpconv imports it.
"""
