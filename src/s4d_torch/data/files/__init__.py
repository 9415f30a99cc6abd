"""Readers of file formats, and the download and unpacking of archives."""
