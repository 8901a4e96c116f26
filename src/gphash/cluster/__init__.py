"""Training on a Dask cluster: the executor, its workers, and rows that Dask holds."""
