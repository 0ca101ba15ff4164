"""Other engines and ours, side by side on the same models: `make bench`. Started by __main__, which says how."""
