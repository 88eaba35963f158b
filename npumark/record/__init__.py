"""The record: the JSON document of a run, its canonical bytes and where records are kept."""
