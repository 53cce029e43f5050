"""The compiled part: the loops that touch every record, and the mapping they run on."""
