"""Bases, rules and formulas that several ops share."""
