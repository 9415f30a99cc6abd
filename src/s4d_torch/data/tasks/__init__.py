"""The tasks that come with the package, one file or package per family."""
