"""Files, fixed-point arithmetic, SQNR, progress, memo, thread pool and workers: nothing about models."""
