"""What 8 bits cost with other quantizers and ours, on the same images: `make bench-accuracy`. Started by __main__."""
