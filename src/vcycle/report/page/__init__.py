"""One self-contained HTML page about one run or several: opens from disk, needs no network."""
