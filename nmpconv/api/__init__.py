"""Functions that Python programs call: convert, evaluate, inspect, bench, bundle, export; with `nmpconv.load`, all of
nmpconv.

The keywords are the flags of the commands, with the same names and defaults. Nothing is printed: progress goes to a
callback (stage, done, total), notes go to the logger "nmpconv". Errors are those of `nmpconv.errors`.
"""
