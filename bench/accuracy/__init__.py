"""Accuracy at 8 bits of other quantizers and ours, on the same images: `make bench-accuracy`. Started by __main__."""
