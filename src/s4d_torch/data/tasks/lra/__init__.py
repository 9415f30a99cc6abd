"""The text tasks of the Long Range Arena: ListOps, Text and Retrieval."""
