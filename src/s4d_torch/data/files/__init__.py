"""Readers and writers of file formats, downloads and archives."""
