"""Running .nmp files: the C interpreter, RAM and instructions on targets, devices."""
