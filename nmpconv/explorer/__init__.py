"""How Model Explorer opens a .nmp file: ``model-explorer --extensions=nmpconv.explorer model.nmp``.

Model Explorer loads the module `main` of a package that it is told. Nothing else in nmpconv imports it.
"""
