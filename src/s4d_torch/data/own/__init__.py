"""A user's own data: arrays, tables, sounds and series, from files to datasets."""
