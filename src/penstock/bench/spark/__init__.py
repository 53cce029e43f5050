"""``penstock bench spark``: the pipeline beside Spark's Parquet, a source of tuples, a bare scanner."""
