"""One engine a file: what `job.Engine` asks for. Each imports its packages at the top, which may be missing."""
